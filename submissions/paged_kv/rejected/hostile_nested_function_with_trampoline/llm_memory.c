/* Damage: a pointer to a nested function of GNU C, for which gcc writes code on the stack. By the command of the handout
 * it links (ld warns) and runs; linked with noexecstack it crashes.
 * Held: told before it runs, by the flag of its section .note.GNU-stack. */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>
#define E LLMEngine*e
#define S Sequence
#define SZ sizeof(int[16])
#define HD (&e->active_seqs)
#define SEQ(n) ((S*)((char*)(n)-offsetof(S,node)))
typedef struct{int w[16];}B;
static B*blk(E,int b){return(B*)e->pool_base_ptr+b;}
static S*get(E,int id){for(struct list_node*n=HD->next;n!=HD;n=n->next)if(SEQ(n)->seq_id==id)return SEQ(n);return 0;}
static int take(E){for(int b=0;b<e->total_local_blocks;b++)if(!e->ref_count[b])return e->free_local_blocks--,e->ref_count[b]=1,b;return-1;}
static int*l2(void){return memset(malloc(SZ),-1,SZ);}
static S*mk(E,int id,int n){S*s=malloc(sizeof*s);*s=(S){id,calloc(16,sizeof(int*)),n,{HD->prev,HD}};return HD->prev=s->node.prev->next=&s->node,s;}
static void del(E,S*s){
 s->node.prev->next=s->node.next,s->node.next->prev=s->node.prev;
 for(int i=0,b;i<256;i++)if(s->block_table[i/16]&&(b=s->block_table[i/16][i%16])>=0)e->free_local_blocks+=!--e->ref_count[b];
 for(int i=0;i<16;i++)free(s->block_table[i]);
 free(s->block_table),free(s);
}
LLMEngine*llm_init(void*p,size_t z){
 if(!p||z<64)return 0;
 E=malloc(sizeof*e);int n=z/64;
 return *e=(LLMEngine){p,n,n,calloc(n,4),{HD,HD}},e;
}
S*create_sequence(E,int id,int len){
 if(!e||len<=0||get(e,id))return 0;
 int n=(len+15)/16;
 if(n>256||n>e->free_local_blocks)return 0;
 S*s=mk(e,id,len);
 for(int i=0;i<n;i++){int**t=s->block_table+i/16;if(!*t)*t=l2();(*t)[i%16]=take(e);}
 return s;
}
int free_sequence(E,int id){
 S*s=e?get(e,id):0;
 return s?del(e,s),0:-1;
}
S*fork_sequence(E,int pid,int id){
 S*p,*c;
 if(!e||!(p=get(e,pid))||get(e,id))return 0;
 c=mk(e,id,p->kv_count);
 for(int i=0;i<16;i++)if(p->block_table[i]){
  int*t=c->block_table[i]=memcpy(l2(),p->block_table[i],SZ);
  for(int*q=t;q<t+16;q++)if(~*q)++e->ref_count[*q];
 }
 return c;
}
int append_kv(E,int id,int v){
 S*s;
 if(!e||!(s=get(e,id))||s->kv_count>=4096)return-1;
 int k=s->kv_count,**t=s->block_table+k/256,i=k/16%16,o=*t?(*t)[i]:-1,b=o;
 if(o<0||e->ref_count[o]>1){
  if(!e->free_local_blocks)return-1;
  if(!*t)*t=l2();
  (*t)[i]=b=take(e);
  if(o>=0)*blk(e,b)=*blk(e,o),--e->ref_count[o];
 }
 return blk(e,b)->w[k%16]=v,s->kv_count++,0;
}
int llm_destroy(E){
 int count=0;
 __extension__ void one(S*s){count++;del(e,s);}
 void(*volatile call)(S*)=one;
 if(!e)return-1;
 while(HD->next!=HD)call(SEQ(HD->next));
 return free(e->ref_count),free(e),-(count<0);
}
