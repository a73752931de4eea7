/* System calls that are refused or allowed, as programs for the kernel (see filters.py). */
#ifndef FILTER_H
#define FILTER_H

#include <linux/filter.h>

#if defined NO_FILTER /* as on a processor without one */
#elif defined __x86_64__
#include "filter_x86_64.h"
#elif defined __aarch64__
#include "filter_aarch64.h"
#else /* add it to filters.py and run scripts/filter */
#define NO_FILTER
#endif

/* Placeholder in the filters for the only process that may be signalled. */
enum { OWN_PROCESS = 0x5e1f5e1f };

#endif
