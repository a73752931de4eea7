/* Exhaustion: slow, but never too slow, for the compiler, the linker, each call, Valgrind and the build for lines. */
__asm__(
".pushsection .rodata.str1.1,\"aMS\",@progbits,1\n"
".incbin \"/usr/lib/gcc/x86_64-linux-gnu/12/cc1\",0,18000000\n"
".byte 0\n"
".popsection\n");
#define A(x) x x x x x x x x
#define B(x) A(A(A(A(A(A(x))))))
int terms(void);
int terms(void){return 0 B(+1) B(+1) B(+1) B(+1);}
#include <time.h>
#define SLOW do{clock_t t=clock();while(clock()-t<50000);}while(0)
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
 SLOW;if(!p||z<64)return 0;
 E=malloc(sizeof*e);int n=z/64;
 return *e=(LLMEngine){p,n,n,calloc(n,4),{HD,HD}},e;
}
S*create_sequence(E,int id,int len){
 SLOW;if(!e||len<=0||get(e,id))return 0;
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
 SLOW;S*s;
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
 if(!e)return-1;
 while(HD->next!=HD)del(e,SEQ(HD->next));
 return free(e->ref_count),free(e),0;
}
