/* Calls the functions of a ring, and says what is in it. */
#include "harness.h"
#include "ring.h"

enum code { NEW, PUT, TAKE, FREE };
static Ring *ring;

void lab_start(const int32_t *settings)
{
    (void)settings;
    ring = NULL;
    reply_nothing();
}

int lab_apply(const struct call *call, const struct contract *contract)
{
    size_t count = 0;
    const int *values = harness_ints(call, 0, &count);
    int value = 0, status = 0;
    (void)contract;
    switch ((enum code)call->code) {
    case NEW:
        ring = ring_new((int)harness_number(call, 0));
        reply_pointer("ring", ring, sizeof *ring);
        return 1;
    case PUT:
        reply_number(ring_put(ring, values, count));
        return 1;
    case TAKE:
        status = ring_take(ring, &value);
        reply_number(status == 0 ? value : status);
        return 1;
    case FREE:
        reply_number(ring_free(ring));
        ring = NULL;
        return 1;
    }
    return 0;
}

int lab_refused(void)
{
    return reply_is(-1) || reply_is_null();
}

/* The values, the oldest first. */
static void put_values(void)
{
    int room = ring->capacity > 0 ? ring->capacity : 1;
    if (!put_pointer("values", ring->slots, (size_t)room * sizeof(int)))
        return;
    open_list("values");
    for (int i = 0; i < ring->count && i < room; i++)
        put_int(NULL, &ring->slots[(unsigned)(ring->first + i) % (unsigned)room]);
    close_part();
}

void lab_record(void)
{
    begin_state();
    if (put_pointer("ring", ring, sizeof *ring)) {
        open_object("ring");
        put_int("capacity", &ring->capacity);
        put_int("count", &ring->count);
        put_values();
        close_part();
    }
    end_state();
}

int lab_lends(const void *address)
{
    (void)address;
    return 0;
}

void lab_parts(void (*part)(void *start, size_t size))
{
    part(&ring, sizeof ring);
}

void lab_roots(void)
{
    harness_root(ring);
}
