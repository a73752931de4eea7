/* CS110 Homework 3 */

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "llm_memory.h"

LLMEngine* llm_init(void *pool_addr, size_t pool_size) {
    if (pool_addr == NULL) {
        return NULL;
    }
    if (pool_size < BLOCK_SIZE) {
        return NULL;
    }

    LLMEngine* newEngine = (LLMEngine*)malloc(sizeof(LLMEngine));
    if (newEngine == NULL) {
        return NULL;
    }
    int totalBlocks = (int)(pool_size / BLOCK_SIZE);
    newEngine->ref_count = (int*)calloc((size_t)totalBlocks, sizeof(int));
    if (newEngine->ref_count == NULL) {
        free(newEngine);
        return NULL;
    }
    newEngine->pool_base_ptr = pool_addr;
    newEngine->total_local_blocks = totalBlocks;
    newEngine->free_local_blocks = totalBlocks;

    newEngine->active_seqs.prev = &newEngine->active_seqs;
    newEngine->active_seqs.next = &newEngine->active_seqs;
    return newEngine;
}

Sequence* create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
    if (engine == NULL) {
        return NULL;
    }

    if (initial_kv_len <= 0) {
        return NULL;
    }

    struct list_node* p = engine->active_seqs.next;
    while (p != &engine->active_seqs) {
        Sequence* s = (Sequence*)((char*)p - offsetof(Sequence, node));
        if (s->seq_id == seq_id) {
            return NULL;
        }
        p = p->next;
    }

    int needBlocks = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (needBlocks > L1_PT_SIZE * L2_PT_SIZE) {
        return NULL;
    }
    if (needBlocks > engine->free_local_blocks) {
        return NULL;
    }

    Sequence* newSeq = (Sequence*)malloc(sizeof(Sequence));
    int** table = (int**)malloc(sizeof(int*) * L1_PT_SIZE);
    for (int i = 0; i < L1_PT_SIZE; ++i) {
        table[i] = NULL;
    }

    for (int k = 0; k < needBlocks; ++k) {
        int l1 = k / L2_PT_SIZE;
        int l2 = k % L2_PT_SIZE;

        if (table[l1] == NULL) {
            table[l1] = (int*)malloc(sizeof(int) * L2_PT_SIZE);
            for (int j = 0; j < L2_PT_SIZE; ++j) {
                table[l1][j] = -1;
            }
        }

        for (int b = 0; b < engine->total_local_blocks; ++b) {
            if (engine->ref_count[b] == 0) {
                engine->ref_count[b] = 1;
                engine->free_local_blocks--;
                table[l1][l2] = b;
                break;
            }
        }
    }

    newSeq->seq_id = seq_id;
    newSeq->block_table = table;
    newSeq->kv_count = initial_kv_len;

    struct list_node* tail = engine->active_seqs.prev;
    newSeq->node.prev = tail;
    newSeq->node.next = &engine->active_seqs;
    tail->next = &newSeq->node;
    engine->active_seqs.prev = &newSeq->node;
    return newSeq;
}

int free_sequence(LLMEngine *engine, int seq_id) {
    if (engine == NULL) {
        return -1;
    }

    Sequence* target = NULL;
    struct list_node* p = engine->active_seqs.next;
    while (p != &engine->active_seqs) {
        Sequence* s = (Sequence*)((char*)p - offsetof(Sequence, node));
        if (s->seq_id == seq_id) {
            target = s;
            break;
        }
        p = p->next;
    }
    if (target == NULL) {
        return -1;
    }

    target->node.prev->next = target->node.next;
    target->node.next->prev = target->node.prev;

    for (int i = 0; i < L1_PT_SIZE; ++i) {
        if (target->block_table[i] != NULL) {
            for (int j = 0; j < L2_PT_SIZE; ++j) {
                int blockId = target->block_table[i][j];
                if (blockId != -1) {
                    engine->ref_count[blockId]--;
                    if (engine->ref_count[blockId] == 0) {
                        engine->free_local_blocks++;
                    }
                }
            }
            free(target->block_table[i]);
        }
    }

    free(target->block_table);
    free(target);
    return 0;
}

Sequence* fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
    if (engine == NULL) {
        return NULL;
    }

    Sequence* parent = NULL;
    struct list_node* p = engine->active_seqs.next;
    while (p != &engine->active_seqs) {
        Sequence* s = (Sequence*)((char*)p - offsetof(Sequence, node));
        if (s->seq_id == new_seq_id) {
            return NULL;
        }
        if (s->seq_id == parent_seq_id) {
            parent = s;
        }
        p = p->next;
    }
    if (parent == NULL) {
        return NULL;
    }

    Sequence* child = (Sequence*)malloc(sizeof(Sequence));
    child->block_table = (int**)malloc(sizeof(int*) * L1_PT_SIZE);
    for (int i = 0; i < L1_PT_SIZE; ++i) {
        child->block_table[i] = NULL;
    }

    for (int i = 0; i < L1_PT_SIZE; ++i) {
        if (parent->block_table[i] != NULL) {
            int* newL2 = (int*)malloc(sizeof(int) * L2_PT_SIZE);
            for (int j = 0; j < L2_PT_SIZE; ++j) {
                newL2[j] = -1;
            }
            for (int j = 0; j < L2_PT_SIZE; ++j) {
                int blockId = parent->block_table[i][j];
                if (blockId != -1) {
                    newL2[j] = blockId;
                    engine->ref_count[blockId]++;
                }
            }
            child->block_table[i] = newL2;
        }
    }
    child->seq_id = new_seq_id;
    child->kv_count = parent->kv_count;

    struct list_node* tail = engine->active_seqs.prev;
    child->node.prev = tail;
    child->node.next = &engine->active_seqs;
    tail->next = &child->node;
    engine->active_seqs.prev = &child->node;
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    if (engine == NULL) {
        return -1;
    }

    Sequence* target = NULL;
    struct list_node* p = engine->active_seqs.next;
    while (p != &engine->active_seqs) {
        Sequence* s = (Sequence*)((char*)p - offsetof(Sequence, node));
        if (s->seq_id == seq_id) {
            target = s;
            break;
        }
        p = p->next;
    }
    if (target == NULL) {
        return -1;
    }

    int logicalIdx = target->kv_count / KV_PER_BLOCK;
    int offset = target->kv_count % KV_PER_BLOCK;
    if (logicalIdx >= L1_PT_SIZE * L2_PT_SIZE) {
        return -1;
    }
    int l1 = logicalIdx / L2_PT_SIZE;
    int l2 = logicalIdx % L2_PT_SIZE;

    int needNewPage = 0;
    int needCow = 0;
    if (target->block_table[l1] == NULL || target->block_table[l1][l2] == -1) {
        needNewPage = 1;
    } else if (engine->ref_count[target->block_table[l1][l2]] > 1) {
        needCow = 1;
    }

    int freeBlock = -1;
    if (needNewPage || needCow) {
        if (engine->free_local_blocks == 0) {
            return -1;
        }
        for (int b = 0; b < engine->total_local_blocks; ++b) {
            if (engine->ref_count[b] == 0) {
                freeBlock = b;
                break;
            }
        }
    }

    if (needNewPage) {
        if (target->block_table[l1] == NULL) {
            target->block_table[l1] = (int*)malloc(sizeof(int) * L2_PT_SIZE);
            for (int j = 0; j < L2_PT_SIZE; ++j) {
                target->block_table[l1][j] = -1;
            }
        }
        target->block_table[l1][l2] = freeBlock;
        engine->ref_count[freeBlock] = 1;
        engine->free_local_blocks--;
    }

    if (needCow) {
        int oldBlock = target->block_table[l1][l2];
        char* src = (char*)engine->pool_base_ptr + (long)oldBlock * BLOCK_SIZE;
        char* dst = (char*)engine->pool_base_ptr + (long)freeBlock * BLOCK_SIZE;
        memcpy(dst, src, BLOCK_SIZE * sizeof(int));
        engine->ref_count[oldBlock]--;
        engine->ref_count[freeBlock] = 1;
        engine->free_local_blocks--;
        target->block_table[l1][l2] = freeBlock;
    }

    int blockId = target->block_table[l1][l2];
    int* addr = (int*)((char*)engine->pool_base_ptr + (long)blockId * BLOCK_SIZE);
    addr[offset] = kv_data;
    target->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine) {
    if (engine == NULL) {
        return -1;
    }

    struct list_node* p = engine->active_seqs.next;
    while (p != &engine->active_seqs) {
        struct list_node* nextNode = p->next;
        Sequence* s = (Sequence*)((char*)p - offsetof(Sequence, node));
        for (int i = 0; i < L1_PT_SIZE; ++i) {
            if (s->block_table[i] != NULL) {
                free(s->block_table[i]);
            }
        }
        free(s->block_table);
        free(s);
        p = nextNode;
    }

    free(engine->ref_count);
    free(engine);
    return 0;
}
