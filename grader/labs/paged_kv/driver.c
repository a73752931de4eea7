/* The only code that knows the student's structures. It makes the six calls, pokes, and reports the state by the names
 * of reference/paged_kv/oracle.py. Three more names occur only in a wrong state: pool_base_ptr if it is not the pool,
 * next if the walk along next does not end at the head, prev if the walk along prev is not its mirror. It trusts no
 * pointer that the table of allocations does not confirm, and no length that it did not count itself.
 */
#include "harness.h"
#include "llm_memory.h"

#include <string.h>

enum { MOST_ENGINES = 8, MOST_SEQUENCES = 8192, MORE_SEQUENCES = 4, MOST_ARGUMENTS = 3 };
enum setting { SEED, ENGINES, POOL_ALIGN, HEAP_FALLS };
/* in the order of the lab's list of operations */
enum code {
    INIT, CREATE, FREE, FORK, APPEND, DESTROY, MOVE_L2, UNMAP, SET_KV_COUNT,
    MAKE_ENGINE, ADD_SEQUENCE, MAP_BLOCK, STORE_RECORD
};

static LLMEngine *engines[MOST_ENGINES + 1]; /* by number, under which its pool is lent; 0 is the NULL engine */
static int32_t makers; /* calls so far that could make a sequence */
static int32_t seed, most_engines, pool_align;

void lab_parts(void (*part)(void *start, size_t size))
{
    part(engines, sizeof engines);
    part(&makers, sizeof makers);
}

void lab_start(const int32_t *settings)
{
    seed = settings[SEED];
    most_engines = settings[ENGINES];
    pool_align = settings[POOL_ALIGN];
    if (settings[HEAP_FALLS])
        harness_fall();
    makers = 0;
    memset(engines, 0, sizeof engines);
}

static void make_pool(const struct call *call)
{
    size_t size = (size_t)harness_number(call, 0);
    struct loan loan = {size, BLOCK_SIZE, (size_t)pool_align % BLOCK_SIZE, seed};
    harness_lend(call->target, &loan);
}

static size_t blocks_of(int32_t number)
{
    size_t size;
    harness_lent(number, &size);
    return size / BLOCK_SIZE;
}

static void reply_sequence(const Sequence *sequence)
{
    int fine = harness_pointer(sequence, sizeof *sequence) == PTR_OK;
    reply_pointer(fine ? harness_numbered("sequence", sequence->seq_id) : NULL, sequence, sizeof *sequence);
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

static int unmap(LLMEngine *engine, const int32_t *argument, size_t blocks)
{
    int **l1 = l1_of(find(engine, argument[0]));
    int *l2 = l1 == NULL ? NULL : l1[argument[1] / L2_PT_SIZE];
    if (harness_pointer(l2, L2_PT_SIZE * sizeof(int)) != PTR_OK)
        return 0;
    int block = l2[argument[1] % L2_PT_SIZE];
    if (block < 0 || (size_t)block >= blocks
        || harness_pointer(engine->ref_count, blocks * sizeof(int)) != PTR_OK
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

/* The following pokes build a state as the handout's calls would leave it: each table is its own allocation. */

static int make_engine(int32_t number)
{
    size_t blocks = blocks_of(number);
    LLMEngine *engine = harness_malloc(sizeof *engine);
    if (engine == NULL || (engine->ref_count = harness_malloc(blocks * sizeof(int))) == NULL)
        return 0;
    memset(engine->ref_count, 0, blocks * sizeof(int));
    engine->pool_base_ptr = harness_lent(number, NULL);
    engine->total_local_blocks = engine->free_local_blocks = (int)blocks;
    engine->active_seqs.next = engine->active_seqs.prev = &engine->active_seqs;
    engines[number] = engine;
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

static int store_record(int32_t number, const int32_t *argument)
{
    char *pool = harness_lent(number, NULL);
    memcpy(pool + (size_t)argument[0] * sizeof(int), &argument[1], sizeof(int));
    return 1;
}

/* ---------------------------------------------------------------- operations */

static void init(const struct call *call)
{
    int null = harness_is_null(call, 0);
    void *pool = null ? NULL : harness_lent(call->target, NULL);
    LLMEngine *engine = llm_init(pool, (size_t)harness_number(call, null));
    engines[call->target] = engine;
    reply_pointer("engine", engine, sizeof *engine);
}

int lab_apply(const struct call *call)
{
    int32_t argument[MOST_ARGUMENTS];
    for (int i = 0; i < MOST_ARGUMENTS; i++)
        argument[i] = (int32_t)harness_number(call, i);
    makers += call->code == CREATE || call->code == FORK || call->code == ADD_SEQUENCE;
    if (call->code == MAKE_ENGINE || (call->code == INIT && !harness_is_null(call, 0)))
        make_pool(call);
    LLMEngine *engine = engines[call->target];
    switch ((enum code)call->code) {
    case INIT:
        init(call);
        return 1;
    case CREATE:
        reply_sequence(create_sequence(engine, argument[0], argument[1]));
        return 1;
    case FREE:
        reply_number(free_sequence(engine, argument[0]));
        return 1;
    case FORK:
        reply_sequence(fork_sequence(engine, argument[0], argument[1]));
        return 1;
    case APPEND:
        reply_number(append_kv(engine, argument[0], argument[1]));
        return 1;
    case DESTROY:
        engines[call->target] = NULL;
        reply_number(llm_destroy(engine));
        return 1;
    case MOVE_L2:
        return move_l2(engine, argument);
    case UNMAP:
        return unmap(engine, argument, blocks_of(call->target));
    case SET_KV_COUNT:
        return set_kv_count(engine, argument);
    case MAKE_ENGINE:
        return make_engine(call->target);
    case ADD_SEQUENCE:
        return add_sequence(engine, argument);
    case MAP_BLOCK:
        return map_block(engine, argument);
    case STORE_RECORD:
        return store_record(call->target, argument);
    }
    return 0;
}

/* ---------------------------------------------------------------- the state */

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
    int **l1 = sequence->block_table;
    open_object(harness_numbered("", sequence->seq_id));
    put_int("kv_count", &sequence->kv_count);
    if (put_pointer("block_table", &sequence->block_table, L1_PT_SIZE * sizeof *l1)) {
        open_list("block_table");
        for (int i = 0; i < L1_PT_SIZE; i++)
            if (put_pointer(NULL, &l1[i], L2_PT_SIZE * sizeof(int))) {
                put_entries(NULL, l1[i], L2_PT_SIZE, -1);
                if (is_overfull(sequence, i))
                    harness_unfilled(l1[i]);
            }
        close_part();
    }
    close_part();
}

static void put_sequences(LLMEngine *engine)
{
    static HARNESS_LARGE struct list_node *nodes[MOST_SEQUENCES];
    struct list_node *head = &engine->active_seqs, *node = head->next;
    enum pointer end = PTR_OK;
    int count = 0, most = makers + MORE_SEQUENCES; /* more than there can be; a longer list counts as endless */
    if (most > MOST_SEQUENCES)
        most = MOST_SEQUENCES;
    while (node != head) {
        end = node == NULL ? PTR_NULL : harness_pointer(sequence_of(node), sizeof(Sequence));
        if (end == PTR_OK && (harness_seen(sequence_of(node)) || count == most))
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
    open_list("active_seqs");
    for (int i = 0; i < count; i++)
        put_int(NULL, &sequence_of(nodes[i])->seq_id);
    close_part();
    open_object("sequences");
    for (int i = 0; i < count; i++)
        put_sequence(sequence_of(nodes[i]));
    close_part();
    if (end != PTR_OK)
        put_unreadable("next", count ? &nodes[count - 1]->next : &head->next, end);
    else if (same < count || back != head)
        put_unreadable("prev", same ? &nodes[count - same]->prev : &head->prev, PTR_STRAY);
}

static void put_engine(int32_t number)
{
    LLMEngine *engine = engines[number];
    if (harness_pointer(engine, sizeof *engine) != PTR_OK) {
        put_null("engine");
        return;
    }
    open_object("engine");
    put_int("total_local_blocks", &engine->total_local_blocks);
    put_int("free_local_blocks", &engine->free_local_blocks);
    if (put_pointer("ref_count", &engine->ref_count, blocks_of(number) * sizeof(int)))
        put_ints("ref_count", engine->ref_count, blocks_of(number));
    put_sequences(engine);
    if (engine->pool_base_ptr != harness_lent(number, NULL))
        put_unreadable("pool_base_ptr", &engine->pool_base_ptr, PTR_STRAY);
    close_part();
}

void lab_record(void)
{
    begin_state();
    for (int32_t number = 1; number <= most_engines; number++) {
        size_t size;
        if (harness_lent(number, &size) == NULL)
            continue;
        open_object(harness_numbered("", number));
        put_number("pool_bytes", (int64_t)size);
        put_engine(number);
        put_lent("region", number);
        close_part();
    }
    end_state();
}
