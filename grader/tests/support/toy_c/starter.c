#include "ring.h"

Ring *ring_new(int capacity)
{
    (void)capacity;
    return NULL;
}

int ring_put(Ring *ring, const int *values, size_t count)
{
    (void)ring;
    (void)values;
    (void)count;
    return -1;
}

int ring_take(Ring *ring, int *value)
{
    (void)ring;
    (void)value;
    return -1;
}

int ring_free(Ring *ring)
{
    (void)ring;
    return -1;
}
