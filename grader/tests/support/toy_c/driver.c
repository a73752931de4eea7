/* Calls the functions of a ring, and says what is in it. */
#include "harness.h"
#include "ring.h"

enum { NEW, PUT, TAKE, FREE };
static Ring *ring;

int lab_apply(const struct call *call)
{
    size_t count;
    int value = 0, status = 0;
    const int32_t *values = harness_ints(call, 0, &count);
    switch (call->code) {
    case NEW:
        ring = ring_new((int)harness_number(call, 0));
        reply_pointer("ring", ring, sizeof *ring);
        break;
    case PUT:
        reply_number(ring_put(ring, values, count));
        break;
    case TAKE:
        status = ring_take(ring, &value);
        reply_number(status == 0 ? value : status);
        break;
    case FREE:
        reply_number(ring_free(ring));
        ring = NULL;
    }
    return 1;
}

void lab_record(void)
{
    begin_state();
    if (put_pointer("ring", &ring, sizeof *ring)) {
        int room = ring->capacity > 0 ? ring->capacity : 1;
        open_object("ring");
        put_int("capacity", &ring->capacity);
        put_int("count", &ring->count);
        if (put_pointer("values", &ring->slots, (size_t)room * sizeof(int))) {
            open_list("values");
            for (int i = 0; i < ring->count && i < room; i++)
                put_int(NULL, &ring->slots[(unsigned)(ring->first + i) % (unsigned)room]);
            close_part();
        }
        close_part();
    }
    end_state();
}

void lab_parts(void (*part)(void *start, size_t size))
{
    part(&ring, sizeof ring);
}
