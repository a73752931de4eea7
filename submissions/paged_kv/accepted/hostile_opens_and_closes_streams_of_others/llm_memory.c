/* Reading: right, and opens files of others by fopen and freopen, leaves files, uses streams after they are closed, and
   closes those that are not its own. */
#define _GNU_SOURCE
#include "llm_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const PLACES[] = {
    "llm_memory.c", "program", "../hostile_canary", "../grade-neighbour/llm_memory.c", "/etc/passwd", "/proc/self/maps",
    "/proc/self/fd/3", "/dev/fd/4", "/proc/1/environ",
};
static const char *const MARKS[] = {"hostile_mark", "../hostile_mark", "/tmp/hostile_mark", "/dev/shm/hostile_mark"};
static const char *const MODES[] = {"r", "rb", "r+", "w+", "a+", "rw", "", "x", "r,ccs=UTF-8"};
enum { DESCRIPTORS = 64 };

static void read_from(FILE *file, const char *place)
{
    char text[64];
    if (file != NULL && fgets(text, sizeof text, file) != NULL)
        printf("HOSTILE-GOT %s from %s\n", text, place);
}

static void write_to(FILE *file)
{
    if (file != NULL) {
        fprintf(file, "left by a hostile sample\n");
        fflush(file);
        if (write(fileno(file), "left", 4) < 0)
            perror("write");
    }
}

static void close_twice(FILE *file)
{
    FILE *volatile same = file; /* gcc would see it */
    if (file != NULL) {
        fclose(file);
        write_to(same);
        fclose(same);
    }
}

static void pry(void)
{
    static _Thread_local int done;
    if (done++)
        return;
    for (size_t i = 0; i < sizeof PLACES / sizeof *PLACES; i++)
        for (size_t j = 0; j < sizeof MODES / sizeof *MODES; j++) {
            FILE *file = fopen(PLACES[i], MODES[j]);
            read_from(file, PLACES[i]);
            if (file != NULL)
                fclose(file);
            read_from(freopen(PLACES[i], MODES[j], stdin), PLACES[i]);
        }
    for (size_t i = 0; i < sizeof MARKS / sizeof *MARKS; i++) {
        write_to(fopen(MARKS[i], "w"));
        write_to(freopen(MARKS[i], "a", stderr));
        write_to(freopen(MARKS[i], "w", stdout));
    }
    for (int i = 0; i < DESCRIPTORS; i++)
        write_to(fdopen(i, "w"));
    FILE *file = tmpfile();
    fclose(stdin);
    fclose(stdout);
    fclose(stderr);
    close_twice(file);
    close_twice(fopen(MARKS[0], "w"));
    read_from(fopen(PLACES[0], "a+"), PLACES[0]);
    fcloseall();
}

#define SEQUENCE(item) ((Sequence *)(void *)((char *)(item) - offsetof(Sequence, node)))

static Sequence *find(LLMEngine *engine, int seq_id)
{
    for (struct list_node *item = engine->active_seqs.next; item != &engine->active_seqs; item = item->next)
        if (SEQUENCE(item)->seq_id == seq_id)
            return SEQUENCE(item);
    return NULL;
}

static int take_block(LLMEngine *engine)
{
    for (int block = 0; block < engine->total_local_blocks; block++)
        if (engine->ref_count[block] == 0) {
            engine->ref_count[block] = 1;
            engine->free_local_blocks--;
            return block;
        }
    return -1;
}

static int *entry(Sequence *sequence, int index)
{
    int **table = &sequence->block_table[index / L2_PT_SIZE];
    if (*table == NULL) {
        *table = malloc(L2_PT_SIZE * sizeof(int));
        for (int i = 0; i < L2_PT_SIZE; i++)
            (*table)[i] = -1;
    }
    return *table + index % L2_PT_SIZE;
}

static Sequence *add(LLMEngine *engine, int seq_id, int kv_count)
{
    Sequence *sequence = malloc(sizeof *sequence);
    struct list_node *head = &engine->active_seqs;
    *sequence = (Sequence){seq_id, calloc(L1_PT_SIZE, sizeof(int *)), kv_count, {head->prev, head}};
    head->prev->next = &sequence->node;
    head->prev = &sequence->node;
    return sequence;
}

static void drop(LLMEngine *engine, Sequence *sequence)
{
    sequence->node.prev->next = sequence->node.next;
    sequence->node.next->prev = sequence->node.prev;
    for (int i = 0; i < L1_PT_SIZE; i++) {
        for (int j = 0; sequence->block_table[i] != NULL && j < L2_PT_SIZE; j++) {
            int block = sequence->block_table[i][j];
            if (block != -1 && --engine->ref_count[block] == 0)
                engine->free_local_blocks++;
        }
        free(sequence->block_table[i]);
    }
    free(sequence->block_table);
    free(sequence);
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    pry();
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *engine = malloc(sizeof *engine);
    int blocks = (int)(pool_size / BLOCK_SIZE);
    *engine = (LLMEngine){pool_addr, blocks, blocks, calloc((size_t)blocks, sizeof(int)), {NULL, NULL}};
    engine->active_seqs.prev = engine->active_seqs.next = &engine->active_seqs;
    return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL || initial_kv_len <= 0 || find(engine, seq_id) != NULL)
        return NULL;
    int blocks = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (blocks > MAX_LOGICAL_BLOCKS || blocks > engine->free_local_blocks)
        return NULL;
    Sequence *sequence = add(engine, seq_id, initial_kv_len);
    for (int i = 0; i < blocks; i++)
        *entry(sequence, i) = take_block(engine);
    return sequence;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    Sequence *sequence = engine == NULL ? NULL : find(engine, seq_id);
    if (sequence == NULL)
        return -1;
    drop(engine, sequence);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    Sequence *parent = engine == NULL ? NULL : find(engine, parent_seq_id);
    if (parent == NULL || find(engine, new_seq_id) != NULL)
        return NULL;
    Sequence *child = add(engine, new_seq_id, parent->kv_count);
    for (int i = 0; i < MAX_LOGICAL_BLOCKS; i++)
        if (parent->block_table[i / L2_PT_SIZE] != NULL) {
            int block = *entry(child, i) = *entry(parent, i);
            if (block != -1)
                engine->ref_count[block]++;
        }
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    Sequence *sequence = engine == NULL ? NULL : find(engine, seq_id);
    if (sequence == NULL || sequence->kv_count >= MAX_LOGICAL_BLOCKS * KV_PER_BLOCK)
        return -1;
    int index = sequence->kv_count / KV_PER_BLOCK, offset = sequence->kv_count % KV_PER_BLOCK;
    int *table = sequence->block_table[index / L2_PT_SIZE];
    int old = table == NULL ? -1 : table[index % L2_PT_SIZE];
    int block = old;
    if (old == -1 || engine->ref_count[old] > 1) {
        if (engine->free_local_blocks == 0)
            return -1;
        *entry(sequence, index) = block = take_block(engine);
        if (old != -1) {
            memcpy((char *)engine->pool_base_ptr + (size_t)block * BLOCK_SIZE,
                   (char *)engine->pool_base_ptr + (size_t)old * BLOCK_SIZE, BLOCK_SIZE);
            engine->ref_count[old]--;
        }
    }
    ((int *)engine->pool_base_ptr)[block * KV_PER_BLOCK + offset] = kv_data;
    sequence->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    while (engine->active_seqs.next != &engine->active_seqs)
        drop(engine, SEQUENCE(engine->active_seqs.next));
    free(engine->ref_count);
    free(engine);
    return 0;
}
