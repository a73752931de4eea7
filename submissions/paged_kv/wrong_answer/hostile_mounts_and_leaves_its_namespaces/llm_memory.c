/* Damage: no call does anything; each tries to get rights in namespaces of its own, and to mount with them. */
#include "llm_memory.h"

#include <stddef.h>

#if defined(__x86_64__)
#define NR(x86, arm) (x86)
#else
#define NR(x86, arm) (arm)
#endif

static long raw(long number, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
    long answer;
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "=a"(answer) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return answer;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = f;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
#else
    (void)number, (void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
    return -1;
#endif
}

/* A system call with the arguments that it needs; the others are zeros. */
#define RAW(...) RAW_(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)
#define RAW_(number, a, b, c, d, e, f, ...) \
    raw((number), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

enum {
    UNSHARE = NR(272, 97), SETNS = NR(308, 268), MOUNT = NR(165, 40), UMOUNT = NR(166, 39), CHROOT = NR(161, 51),
    PIVOT_ROOT = NR(155, 41), SETUID = NR(105, 146), SETGROUPS = NR(116, 159), SETHOSTNAME = NR(170, 161),
    REBOOT = NR(169, 142), SWAPOFF = NR(168, 225), SETTIME = NR(227, 112), BPF = NR(321, 280), PERF = NR(298, 241),
    KEYCTL = NR(250, 219), CLONE3 = 435, MOUNT_TREE = 428, MOVE_MOUNT = 429, FSOPEN = 430, USERFAULTFD = NR(323, 282)
};

static void leave_namespaces(void)
{
    static const char here[] = ".", up[] = "..", root[] = "/";
    static const char kind[] = "tmpfs";
    static const long nothing[16];
    RAW(SETUID, 0);
    RAW(SETGROUPS, 0, NULL);
    RAW(UNSHARE, 0x10000000); /* a user namespace, in which one has all rights */
    RAW(UNSHARE, 0x6e020000); /* all others */
    RAW(MOUNT, kind, up, kind, 0, here);
    RAW(MOUNT, root, up, kind, 4096, here);
    RAW(MOUNT, root, root, kind, 32, here);
    RAW(UMOUNT, up, 2);
    RAW(PIVOT_ROOT, here, here);
    RAW(CHROOT, up);
    RAW(SETHOSTNAME, "hostile_mark", 12);
    RAW(MOUNT_TREE, -100, up, 1);
    RAW(FSOPEN, kind, 0);
    RAW(SETNS, 0, 0);
    RAW(BPF, 0, nothing, 48);
    RAW(PERF, nothing, 0, -1, -1, 0);
    RAW(USERFAULTFD, 0);
    RAW(KEYCTL, 0, -3, 1);
    RAW(SETTIME, 99, nothing); /* no clock has this number */
    RAW(SWAPOFF, "hostile_mark");
    RAW(REBOOT, 0, 0, 0); /* without the numbers that it wants it only says no */
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    (void)pool_addr, (void)pool_size;
    leave_namespaces();
    return NULL;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    (void)engine, (void)seq_id, (void)initial_kv_len;
    return NULL;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    (void)engine, (void)seq_id;
    return -1;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    (void)engine, (void)parent_seq_id, (void)new_seq_id;
    return NULL;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    (void)engine, (void)seq_id, (void)kv_data;
    return -1;
}

int llm_destroy(LLMEngine *engine)
{
    (void)engine;
    return -1;
}
