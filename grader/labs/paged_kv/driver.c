/* The only code that knows the student's structures: it makes the six calls, pokes, and writes the record whose
 * layout grader/labs/paged_kv/judging/record.py describes. It trusts no pointer that the table of allocations does not
 * confirm, and no length that it did not count itself.
 */
#include "harness.h"
#include "llm_memory.h"

#include <string.h>

enum { MOST_ENGINES = 8, MOST_SEQUENCES = 8192, MORE_SEQUENCES = 4, PAGE = 4096, MOST_ARGUMENTS = 3 };
enum { GUARD = BLOCK_SIZE };
enum setting { SEED, ENGINES, POOL_ALIGN, HEAP_FALLS };
/* in the order of the lab's list of operations */
enum code {
    INIT, CREATE, FREE, FORK, APPEND, DESTROY, MOVE_L2, UNMAP, SET_KV_COUNT,
    MAKE_ENGINE, ADD_SEQUENCE, MAP_BLOCK, STORE_RECORD
};
enum reply { NOTHING, INT, A_NULL, SEQUENCE, ENGINE, STRAY };

struct slot {
    LLMEngine *engine;
    void *pages;
    unsigned char *pool; /* the region lies GUARD bytes before it and behind it */
    int32_t pool_bytes;  /* -1: no pool yet */
};

static struct slot slots[MOST_ENGINES + 1]; /* by number; 0 is the NULL engine */
static int32_t seed, engines, pool_align, makers; /* makers: calls so far that could make a sequence */
static enum reply reply_kind;
static int32_t reply_value;

static size_t region_words(int32_t pool_bytes)
{
    return ((size_t)pool_bytes + 2 * GUARD + 3) / 4;
}

/* Whole pages, so that a store shortly after the pool is also a store into forbidden memory. */
static size_t pages_of(int32_t pool_bytes)
{
    return (region_words(pool_bytes) * 4 + 2 * GUARD + PAGE - 1) / PAGE * PAGE;
}

static void drop_pool(struct slot *slot)
{
    if (slot->pages != NULL)
        harness_drop(slot->pages, pages_of(slot->pool_bytes));
    slot->pages = NULL;
}

void lab_start(const int32_t *settings)
{
    for (int i = 0; i <= MOST_ENGINES; i++)
        drop_pool(&slots[i]);
    seed = settings[SEED];
    engines = settings[ENGINES];
    pool_align = settings[POOL_ALIGN];
    if (settings[HEAP_FALLS])
        harness_fall();
    makers = 0;
    memset(slots, 0, sizeof slots);
    for (int i = 0; i <= MOST_ENGINES; i++)
        slots[i].pool_bytes = -1;
}

/* A fresh region of magic words; reference/paged_kv/pool.py has the same formula. */
static void make_pool(int32_t number, int32_t pool_bytes)
{
    size_t words = region_words(pool_bytes);
    drop_pool(&slots[number]);
    unsigned char *pages = harness_pages(pages_of(pool_bytes));
    unsigned char *region = pages + pool_align % GUARD;
    uint32_t start = (uint32_t)seed * 0x85EBCA6Bu + ((uint32_t)number << 24);
    for (size_t i = 0; i < words; i++) {
        uint32_t word = (start + (uint32_t)i) * 0x9E3779B1u;
        memcpy(region + 4 * i, &word, sizeof word);
    }
    slots[number].pages = pages;
    slots[number].pool = region + GUARD;
    slots[number].pool_bytes = pool_bytes;
}

int lab_lends(const void *address)
{
    uintptr_t at = (uintptr_t)address;
    for (int i = 1; i <= MOST_ENGINES; i++) {
        uintptr_t start = (uintptr_t)slots[i].pages;
        if (slots[i].pages != NULL && at >= start && at < start + pages_of(slots[i].pool_bytes))
            return 1;
    }
    return 0;
}

void lab_parts(void (*part)(void *start, size_t size))
{
    part(slots, sizeof slots);
    part(&makers, sizeof makers);
    for (int i = 1; i <= MOST_ENGINES; i++)
        if (slots[i].pages != NULL)
            part(slots[i].pool - GUARD, region_words(slots[i].pool_bytes) * sizeof(int32_t));
}

void lab_roots(void)
{
    for (int i = 1; i <= MOST_ENGINES; i++)
        harness_root(slots[i].engine);
}

static void reply_int(int value)
{
    reply_kind = INT;
    reply_value = value;
}

int lab_refused(void)
{
    return reply_kind == A_NULL || (reply_kind == INT && reply_value == -1);
}

static void reply_sequence(const Sequence *sequence)
{
    enum pointer pointer = harness_pointer(sequence, sizeof *sequence);
    reply_kind = pointer == PTR_OK ? SEQUENCE : pointer == PTR_NULL ? A_NULL : STRAY;
    reply_value = pointer == PTR_OK ? sequence->seq_id : 0;
}

static void reply_engine(const LLMEngine *engine)
{
    enum pointer pointer = harness_pointer(engine, sizeof *engine);
    reply_kind = pointer == PTR_OK ? ENGINE : pointer == PTR_NULL ? A_NULL : STRAY;
    reply_value = 0;
}

/* ---------------------------------------------------------------- pokes */

static Sequence *sequence_of(struct list_node *node)
{
    return (Sequence *)(void *)((char *)node - offsetof(Sequence, node));
}

static Sequence *find(LLMEngine *engine, int seq_id)
{
    if (harness_pointer(engine, sizeof *engine) != PTR_OK)
        return NULL;
    struct list_node *node = engine->active_seqs.next;
    for (int steps = 0; node != &engine->active_seqs && steps < MOST_SEQUENCES; steps++, node = node->next) {
        if (harness_pointer(sequence_of(node), sizeof(Sequence)) != PTR_OK)
            return NULL;
        if (sequence_of(node)->seq_id == seq_id)
            return sequence_of(node);
    }
    return NULL;
}

static int **l1_of(Sequence *sequence)
{
    if (sequence == NULL || harness_pointer(sequence->block_table, L1_PT_SIZE * sizeof(int *)) != PTR_OK)
        return NULL;
    return sequence->block_table;
}

static int move_l2(LLMEngine *engine, const int32_t *argument)
{
    int **l1 = l1_of(find(engine, argument[0]));
    if (l1 == NULL || l1[argument[1]] == NULL || l1[argument[2]] != NULL)
        return 0;
    l1[argument[2]] = l1[argument[1]];
    l1[argument[1]] = NULL;
    return 1;
}

static int unmap(LLMEngine *engine, const int32_t *argument, int32_t blocks)
{
    int **l1 = l1_of(find(engine, argument[0]));
    int *l2 = l1 == NULL ? NULL : l1[argument[1] / L2_PT_SIZE];
    if (harness_pointer(l2, L2_PT_SIZE * sizeof(int)) != PTR_OK)
        return 0;
    int block = l2[argument[1] % L2_PT_SIZE];
    if (block < 0 || block >= blocks
        || harness_pointer(engine->ref_count, (size_t)blocks * sizeof(int)) != PTR_OK
        || engine->ref_count[block] < 1)
        return 0;
    l2[argument[1] % L2_PT_SIZE] = -1;
    if (--engine->ref_count[block] == 0)
        engine->free_local_blocks++;
    return 1;
}

static int set_kv_count(LLMEngine *engine, const int32_t *argument)
{
    Sequence *sequence = find(engine, argument[0]);
    if (sequence == NULL)
        return 0;
    sequence->kv_count = argument[1];
    return 1;
}

/* The following build a state as the handout's calls would leave it: each table is an allocation of its own. */

static int make_engine(struct slot *slot)
{
    size_t blocks = (size_t)slot->pool_bytes / BLOCK_SIZE;
    LLMEngine *engine = harness_malloc(sizeof *engine);
    if (engine == NULL || (engine->ref_count = harness_malloc(blocks * sizeof(int))) == NULL)
        return 0;
    memset(engine->ref_count, 0, blocks * sizeof(int));
    engine->pool_base_ptr = slot->pool;
    engine->total_local_blocks = engine->free_local_blocks = (int)blocks;
    engine->active_seqs.next = engine->active_seqs.prev = &engine->active_seqs;
    slot->engine = engine;
    return 1;
}

static int add_sequence(LLMEngine *engine, const int32_t *argument)
{
    Sequence *sequence = harness_malloc(sizeof *sequence);
    if (engine == NULL || sequence == NULL
        || (sequence->block_table = harness_malloc(L1_PT_SIZE * sizeof(int *))) == NULL)
        return 0;
    for (int i = 0; i < L1_PT_SIZE; i++)
        sequence->block_table[i] = NULL;
    sequence->seq_id = argument[0];
    sequence->kv_count = argument[1];
    sequence->node.next = &engine->active_seqs;
    sequence->node.prev = engine->active_seqs.prev;
    engine->active_seqs.prev->next = &sequence->node;
    engine->active_seqs.prev = &sequence->node;
    return 1;
}

static int map_block(LLMEngine *engine, const int32_t *argument)
{
    int **l1 = l1_of(find(engine, argument[0]));
    if (l1 == NULL)
        return 0;
    int **slot = &l1[argument[1] / L2_PT_SIZE];
    if (*slot == NULL) {
        if ((*slot = harness_malloc(L2_PT_SIZE * sizeof(int))) == NULL)
            return 0;
        for (int i = 0; i < L2_PT_SIZE; i++)
            (*slot)[i] = -1;
    }
    if (argument[2] >= 0) {
        (*slot)[argument[1] % L2_PT_SIZE] = argument[2];
        if (engine->ref_count[argument[2]]++ == 0)
            engine->free_local_blocks--;
    }
    return 1;
}

static int store_record(const struct slot *slot, const int32_t *argument)
{
    memcpy(slot->pool + (size_t)argument[0] * sizeof(int), &argument[1], sizeof(int));
    return 1;
}

/* ---------------------------------------------------------------- operations */

static void init(const struct call *call)
{
    int32_t number = call->target;
    if (harness_is_null(call, 0))
        slots[number].engine = llm_init(NULL, (size_t)harness_number(call, 1));
    else
        slots[number].engine = llm_init(slots[number].pool, (size_t)harness_number(call, 0));
    reply_engine(slots[number].engine);
}

static int apply(const struct call *call)
{
    struct slot *slot = &slots[call->target];
    LLMEngine *engine = slot->engine;
    int32_t argument[MOST_ARGUMENTS];
    for (int i = 0; i < MOST_ARGUMENTS; i++)
        argument[i] = (int32_t)harness_number(call, i);
    int32_t blocks = slot->pool_bytes / BLOCK_SIZE;
    reply_kind = NOTHING;
    reply_value = 0;
    switch ((enum code)call->code) {
    case INIT:
        init(call);
        return 1;
    case CREATE:
        reply_sequence(create_sequence(engine, argument[0], argument[1]));
        return 1;
    case FREE:
        reply_int(free_sequence(engine, argument[0]));
        return 1;
    case FORK:
        reply_sequence(fork_sequence(engine, argument[0], argument[1]));
        return 1;
    case APPEND:
        reply_int(append_kv(engine, argument[0], argument[1]));
        return 1;
    case DESTROY:
        slot->engine = NULL;
        reply_int(llm_destroy(engine));
        return 1;
    case MOVE_L2:
        return move_l2(engine, argument);
    case UNMAP:
        return unmap(engine, argument, blocks);
    case SET_KV_COUNT:
        return set_kv_count(engine, argument);
    case MAKE_ENGINE:
        return make_engine(slot);
    case ADD_SEQUENCE:
        return add_sequence(engine, argument);
    case MAP_BLOCK:
        return map_block(engine, argument);
    case STORE_RECORD:
        return store_record(slot, argument);
    }
    return 0;
}

/* Forbid all pools and their guards, except for the bytes that the contract lists. */
static void forbid_pools(const struct contract *contract)
{
    for (int32_t number = 1; number <= engines; number++)
        if (slots[number].pages != NULL)
            harness_forbid(slots[number].pages, pages_of(slots[number].pool_bytes));
    for (int i = 0; i < MOST_SPANS; i++)
        if (contract->may[i].length)
            harness_allow(slots[contract->may[i].target].pool + contract->may[i].start,
                          (size_t)contract->may[i].length);
}

static void allow_pools(void)
{
    for (int32_t number = 1; number <= engines; number++)
        if (slots[number].pages != NULL)
            harness_allow(slots[number].pages, pages_of(slots[number].pool_bytes));
}

int lab_apply(const struct call *call, const struct contract *contract)
{
    makers += call->code == CREATE || call->code == FORK || call->code == ADD_SEQUENCE;
    if (call->code == MAKE_ENGINE || (call->code == INIT && !harness_is_null(call, 0)))
        make_pool(call->target, (int32_t)harness_number(call, 0));
    if (contract == NULL || !contract->on)
        return apply(call);
    forbid_pools(contract);
    int fits = apply(call);
    allow_pools();
    return fits;
}

/* ---------------------------------------------------------------- the record */

static enum pointer first_seen(const void *address, size_t need)
{
    enum pointer pointer = harness_pointer(address, need);
    return pointer == PTR_OK && harness_seen(address) ? PTR_SHARED : pointer;
}

static int readable(enum pointer pointer)
{
    return pointer == PTR_OK || pointer == PTR_SHARED;
}

/* Append a table of ints. Entries past the end of an allocation that is too small, never written, count as `blank`. */
static void put_table(const int *ints, size_t count, int blank)
{
    if (!harness_outside(&ints[count - 1], sizeof *ints)) {
        harness_put_words(ints, count);
        return;
    }
    for (size_t i = 0; i < count; i++)
        harness_put_of(&ints[i], harness_outside(&ints[i], sizeof *ints) ? blank : ints[i]);
}

/* Return whether an entry is mapped after the last block that `kv_count` words need (meaningless after a poke). */
static int is_overfull(const Sequence *sequence, int slot)
{
    const int *table = sequence->block_table[slot];
    int64_t mapped = ((int64_t)sequence->kv_count + KV_PER_BLOCK - 1) / KV_PER_BLOCK - slot * L2_PT_SIZE;
    for (int64_t entry = mapped < 0 ? 0 : mapped; entry < L2_PT_SIZE; entry++)
        if (table[entry] != -1 && !harness_outside(&table[entry], sizeof *table))
            return 1;
    return 0;
}

static void put_sequence(const Sequence *sequence)
{
    enum pointer pointers[L1_PT_SIZE];
    enum pointer table = first_seen(sequence->block_table, L1_PT_SIZE * sizeof(int *));
    harness_put_of(&sequence->seq_id, sequence->seq_id);
    harness_put_of(&sequence->kv_count, sequence->kv_count);
    harness_put_of(&sequence->block_table, (int32_t)table);
    if (!readable(table))
        return;
    for (int i = 0; i < L1_PT_SIZE; i++) {
        int **slot = &sequence->block_table[i];
        pointers[i] = harness_outside(slot, sizeof *slot) ? PTR_NULL : first_seen(*slot, L2_PT_SIZE * sizeof(int));
        harness_put_of(slot, (int32_t)pointers[i]);
    }
    for (int i = 0; i < L1_PT_SIZE; i++)
        if (readable(pointers[i])) {
            put_table(sequence->block_table[i], L2_PT_SIZE, -1);
            if (is_overfull(sequence, i))
                harness_unfilled(sequence->block_table[i]);
        }
}

static void put_list(LLMEngine *engine)
{
    static HARNESS_LARGE struct list_node *nodes[MOST_SEQUENCES];
    struct list_node *head = &engine->active_seqs, *node = head->next;
    enum pointer end = PTR_OK;
    int count = 0, most = makers + MORE_SEQUENCES; /* more than there can be; a longer list counts as endless */
    if (most > MOST_SEQUENCES)
        most = MOST_SEQUENCES;
    while (node != head) {
        end = node == NULL ? PTR_NULL : first_seen(sequence_of(node), sizeof(Sequence));
        if (end == PTR_OK && count == most)
            end = PTR_SHARED;
        if (end != PTR_OK)
            break;
        nodes[count++] = node;
        node = node->next;
    }
    const struct list_node *back = head->prev;
    int same = 0;
    while (same < count && back == nodes[count - 1 - same])
        back = nodes[count - 1 - same++]->prev;
    harness_put_of(count ? &nodes[count - 1]->next : &head->next, (int32_t)end);
    harness_put_of(same ? &nodes[count - same]->prev : &head->prev, end == PTR_OK && same == count && back == head);
    harness_put(count);
    for (int i = 0; i < count; i++)
        put_sequence(sequence_of(nodes[i]));
}

static void put_engine(const struct slot *slot)
{
    LLMEngine *engine = slot->engine;
    size_t blocks = (size_t)slot->pool_bytes / BLOCK_SIZE;
    enum pointer counts = harness_pointer(engine->ref_count, blocks * sizeof(int));
    harness_put_of(&engine->pool_base_ptr, engine->pool_base_ptr == slot->pool);
    harness_put_of(&engine->total_local_blocks, engine->total_local_blocks);
    harness_put_of(&engine->free_local_blocks, engine->free_local_blocks);
    harness_put_of(&engine->ref_count, (int32_t)counts);
    if (counts == PTR_OK)
        put_table(engine->ref_count, blocks, 0);
    put_list(engine);
}

void lab_record(void)
{
    harness_put((int32_t)reply_kind);
    harness_put(reply_value);
    for (int32_t number = 1; number <= engines; number++) {
        const struct slot *slot = &slots[number];
        int lives = slot->pool_bytes >= 0 && harness_pointer(slot->engine, sizeof(LLMEngine)) == PTR_OK;
        harness_put(slot->pool_bytes);
        harness_put(lives);
        if (lives)
            put_engine(slot);
        if (slot->pool_bytes >= 0)
            harness_put_words(slot->pool - GUARD, region_words(slot->pool_bytes));
    }
}
