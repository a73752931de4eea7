"""What the first cause of a wrong program says, by a case each: the words that lead to the mistake, and the line."""

from __future__ import annotations

import pytest

from grader.tests.labs.offload.sent import SAMPLES, cases, graded


@pytest.mark.parametrize(
    ("sample", "case", "rule", "words", "text"),
    [
        (
            "run_time_error/freed_then_recorded",
            "runner/offloads_the_prompt",
            "offload",
            "prefill raises DeviceError: <Buf of 5 x 8> was freed",
            "self.dev.record_stream(k, self.copy_stream)",
        ),
        (
            "run_time_error/ring_larger_than_model",
            "runner/large_ring",
            "load",
            "more buffers than the model has layers",
            "self.dev.copy(slot_v, host_v, self.uploads)",
        ),
        (
            "wrong_answer/syncs_the_copy_stream",
            "runner/overlap_of_all",
            "overlap",
            "by the host wait of line 179",
            "self.dev.sync(self.copy_stream)",
        ),
        (
            "wrong_answer/causal_mask_in_decode",
            "runner/decode_begins_a_block",
            "decode-logits",
            "what attention with causal=True in layer 0 leads to",
            "",
        ),
        (
            "wrong_answer/no_mask_in_prefill",
            "runner/offloads_the_prompt",
            "prefill-logits",
            "what attention with causal=False in layer 0 leads to",
            "",
        ),
        (
            "wrong_answer/position_counted",
            "runner/decode_begins_a_block",
            "decode-logits",
            "token 4 is not rotated for position 4, but for 5",
            "",
        ),
        (
            "wrong_answer/no_decode_yet",
            "runner/flushes_each_token",
            "tracking",
            "has no attribute 'get_prefilled_cpu_blocks'",
            "",
        ),
    ],
)
def test_the_first_cause_leads_to_the_mistake(*, sample: str, case: str, rule: str, words: str, text: str) -> None:
    """By its rule, its hint, and where there is one the line."""
    record, _ = graded(SAMPLES / sample, [one for one in cases() if one.name == case])
    found = record.first_cause
    assert found is not None

    assert found.rule == rule
    assert words in found.hint + found.summary
    if text:
        assert found.lines
        assert record.submission.source[found.lines[0].line - 1].strip() == text
