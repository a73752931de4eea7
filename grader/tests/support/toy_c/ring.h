#ifndef RING_H
#define RING_H

#include <stddef.h>

typedef struct {
    int *slots;   /* an array of its own */
    int capacity; /* slots */
    int first;    /* the slot of the oldest value */
    int count;    /* values */
} Ring;

Ring *ring_new(int capacity);                               /* Part 1 */
int ring_put(Ring *ring, const int *values, size_t count);  /* Part 2 */
int ring_take(Ring *ring, int *value);                      /* Part 3 */
int ring_free(Ring *ring);                                  /* Part 4 */

#endif
