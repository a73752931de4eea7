// 作业三：分页注意力的内存管理器
// 思路：二级块表 + 引用计数 + 写时复制

#include "llm_memory.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// 表多申请一点，防止越界（多出来的格子不会用到）
#define L1_ROOM (L1_PT_SIZE + 1)
#define L2_ROOM (2 * L2_PT_SIZE)

// 由链表结点找回序列的首地址 —— 一定要减去偏移量，不能直接强转！
Sequence *node_to_sequence(struct list_node *p)
{
    return (Sequence *)((char *)p - offsetof(Sequence, node));
}

// 按编号查找序列，找不到返回 NULL
Sequence *find_sequence(LLMEngine *engine, int id)
{
    struct list_node *p;
    for (p = engine->active_seqs.next; p != &engine->active_seqs; p = p->next) {
        Sequence *s = node_to_sequence(p);
        if (s->seq_id == id) return s;
    }
    return NULL;
}

// 首次适应：从 0 开始，第一个引用计数为 0 的块
int find_free_block(LLMEngine *engine)
{
    for (int i = 0; i < engine->total_local_blocks; i++) {
        if (engine->ref_count[i] == 0) return i;
    }
    return -1; // 没有空闲块
}

// 新建二级表，全部置为 -1（未映射）
int *alloc_l2_table(void)
{
    int *t = (int *)malloc(sizeof(int) * L2_ROOM);
    for (int i = 0; i < L2_ROOM; i++) t[i] = -1;
    return t;
}

// 占用一个块：引用计数变为 1，空闲数减一
void take_block(LLMEngine *engine, int b)
{
    engine->ref_count[b] = 1;
    engine->free_local_blocks -= 1;
}

// 归还一个块：计数归零才算空闲
void give_back(LLMEngine *engine, int b)
{
    engine->ref_count[b] -= 1;
    if (engine->ref_count[b] == 0) engine->free_local_blocks += 1;
}

// 插到链表末尾
void insert_tail(LLMEngine *engine, Sequence *s)
{
    struct list_node *head = &engine->active_seqs, *tail = head->prev;
    s->node.prev = tail;
    s->node.next = head;
    tail->next = &s->node;
    head->prev = &s->node;
}

// 释放序列的全部内存（调用之前要先从链表摘下）
void release_sequence(LLMEngine *engine, Sequence *s)
{
    for (int i = 0; i < L1_PT_SIZE; i++) { // 十六个格子都要看，中间可能有空洞
        int *t = s->block_table[i];
        if (!t) continue;
        for (int j = 0; j < L2_PT_SIZE; j++) {
            if (t[j] >= 0) give_back(engine, t[j]);
        }
        free(t);
    }
    free(s->block_table);
    free(s);
}

// 任务一：初始化
LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (!pool_addr || pool_size < BLOCK_SIZE) return NULL;

    LLMEngine *e = (LLMEngine *)malloc(sizeof(LLMEngine));
    e->pool_base_ptr = pool_addr;
    e->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    e->free_local_blocks = e->total_local_blocks;
    e->ref_count = (int *)calloc((size_t)e->total_local_blocks + 1, sizeof(int)); // 多一个，保险
    e->active_seqs.prev = e->active_seqs.next = &e->active_seqs;                  // 空链表指向自己
    return e;
}

// 任务二：创建
Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (!engine) return NULL;
    if (initial_kv_len <= 0) return NULL;                // 第一步：长度
    if (find_sequence(engine, seq_id)) return NULL;      // 第二步：编号唯一

    // 第三步：块够不够（向上取整，用 long long 防溢出）
    long long n = ((long long)initial_kv_len + KV_PER_BLOCK - 1LL) / KV_PER_BLOCK;
    if (n > 256LL || n > engine->free_local_blocks) return NULL;

    Sequence *s = (Sequence *)malloc(sizeof(Sequence));
    s->seq_id = seq_id;
    s->kv_count = initial_kv_len;
    s->block_table = (int **)calloc(L1_ROOM, sizeof(int *));

    for (int k = 0; k < n; k++) {
        int **slot = &s->block_table[k >> 4]; // 除以 16
        if (!*slot) *slot = alloc_l2_table();
        int b = find_free_block(engine);
        (*slot)[k & 15] = b; // 对 16 取余
        take_block(engine, b);
    }
    // 注意：这里绝对不能动物理内存！

    insert_tail(engine, s);
    return s;
}

// 任务二：删除
int free_sequence(LLMEngine *engine, int seq_id)
{
    if (!engine) return -1;
    Sequence *s = find_sequence(engine, seq_id);
    if (!s) return -1;

    struct list_node *a = s->node.prev, *b = s->node.next;
    a->next = b;
    b->prev = a;

    release_sequence(engine, s);
    return 0;
}

// 任务三：分叉，父子共享物理块
Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (!engine) return NULL;
    Sequence *father = find_sequence(engine, parent_seq_id);
    if (!father) return NULL;
    if (find_sequence(engine, new_seq_id)) return NULL;

    Sequence *son = (Sequence *)malloc(sizeof(Sequence));
    son->seq_id = new_seq_id;
    son->kv_count = father->kv_count;
    son->block_table = (int **)calloc(L1_ROOM, sizeof(int *));

    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (!father->block_table[i]) continue;
        son->block_table[i] = alloc_l2_table();
        for (int j = 0; j < L2_PT_SIZE; j++) {
            int b = father->block_table[i][j];
            son->block_table[i][j] = b;
            if (b >= 0) engine->ref_count[b]++; // 多了一个使用者
        }
    }

    insert_tail(engine, son);
    return son;
}

// 任务四：追加一条记录
int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (!engine) return -1;
    Sequence *s = find_sequence(engine, seq_id);
    if (!s) return -1;

    int logical_idx = s->kv_count >> 4;
    int offset = s->kv_count & 15;
    if (logical_idx >= 256) return -1; // 满了

    int l1 = logical_idx >> 4, l2 = logical_idx & 15;
    int old = s->block_table[l1] ? s->block_table[l1][l2] : -1;
    int cur = old;

    // 需要新块的两种情况：没映射，或者与别人共享
    if (old < 0 || engine->ref_count[old] > 1) {
        if (engine->free_local_blocks == 0) return -1; // 内存不足，什么都不改

        if (!s->block_table[l1]) s->block_table[l1] = alloc_l2_table();
        cur = find_free_block(engine);

        if (old >= 0) {
            // 写时复制：整块 16 个整数逐个拷贝
            int *src = (int *)engine->pool_base_ptr + (size_t)old * KV_PER_BLOCK;
            int *dst = (int *)engine->pool_base_ptr + (size_t)cur * KV_PER_BLOCK;
            for (int i = 0; i < KV_PER_BLOCK; i++) dst[i] = src[i];
            give_back(engine, old);
        }
        take_block(engine, cur);
        s->block_table[l1][l2] = cur;
    }

    int *base = (int *)engine->pool_base_ptr + (size_t)cur * KV_PER_BLOCK;
    base[offset] = kv_data;
    s->kv_count++;
    return 0;
}

// 任务五：销毁（内存池不是我们的，不能释放）
int llm_destroy(LLMEngine *engine)
{
    if (!engine) return -1;
    struct list_node *p = engine->active_seqs.next;
    while (p != &engine->active_seqs) {
        struct list_node *q = p->next; // 先记住下一个
        release_sequence(engine, node_to_sequence(p));
        p = q;
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
