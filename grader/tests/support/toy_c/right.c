#include "ring.h"

#include <stdlib.h>

Ring *ring_new(int capacity)
{
    if (capacity < 1)
        return NULL;
    Ring *ring = malloc(sizeof *ring);
    if (ring == NULL)
        return NULL;
    ring->slots = malloc((size_t)capacity * sizeof *ring->slots);
    if (ring->slots == NULL) {
        free(ring);
        return NULL;
    }
    ring->capacity = capacity;
    ring->first = 0;
    ring->count = 0;
    return ring;
}

int ring_put(Ring *ring, const int *values, size_t count)
{
    if (ring == NULL || count > (size_t)(ring->capacity - ring->count))
        return -1;
    for (size_t i = 0; i < count; i++) {
        ring->slots[(ring->first + ring->count) % ring->capacity] = values[i];
        ring->count++;
    }
    return 0;
}

int ring_take(Ring *ring, int *value)
{
    if (ring == NULL || ring->count == 0)
        return -1;
    *value = ring->slots[ring->first];
    ring->first = (ring->first + 1) % ring->capacity;
    ring->count--;
    return 0;
}

int ring_free(Ring *ring)
{
    if (ring == NULL)
        return -1;
    free(ring->slots);
    free(ring);
    return 0;
}
