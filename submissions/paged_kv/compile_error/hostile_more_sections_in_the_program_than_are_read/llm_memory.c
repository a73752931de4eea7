/* Forging: nine hundred debug sections: with those of libc the program has more sections than are looked at, and so
 * would an order to Valgrind be passed over.
 * Held: no program with so many is run, whatever is allowed. */
__asm__(
".irp n,0a,0b,0c,0d,0e,0f,0g,0h,0i,0j,0k,0l,0m,0n,0o,0p,0q,0r,0s,0t,0u,0v,0w,0x,0y,0z,0A,0B,0C,1a,1b,1c,1d,1e,1f,1g,1h,1i,1j,1k,1l,1m,1n,1o,1p,1q,1r,1s,1t,1u,1v,1w,1x,1y,1z,1A,1B,1C,2a,2b,2c,2d,2e,2f,2g,2h,2i,2j,2k,2l,2m,2n,2o,2p,2q,2r,2s,2t,2u,2v,2w,2x,2y,2z,2A,2B,2C,3a,3b,3c,3d,3e,3f,3g,3h,3i,3j,3k,3l,3m,3n,3o,3p,3q,3r,3s,3t,3u,3v,3w,3x,3y,3z,3A,3B,3C,4a,4b,4c,4d,4e,4f,4g,4h,4i,4j,4k,4l,4m,4n,4o,4p,4q,4r,4s,4t,4u,4v,4w,4x,4y,4z,4A,4B,4C,5a,5b,5c,5d,5e,5f,5g,5h,5i,5j,5k,5l,5m,5n,5o,5p,5q,5r,5s,5t,5u,5v,5w,5x,5y,5z,5A,5B,5C,6a,6b,6c,6d,6e,6f,6g,6h,6i,6j,6k,6l,6m,6n,6o,6p,6q,6r,6s,6t,6u,6v,6w,6x,6y,6z,6A,6B,6C,7a,7b,7c,7d,7e,7f,7g,7h,7i,7j,7k,7l,7m,7n,7o,7p,7q,7r,7s,7t,7u,7v,7w,7x,7y,7z,7A,7B,7C,8a,8b,8c,8d,8e,8f,8g,8h,8i,8j,8k,8l,8m,8n,8o,8p,8q,8r,8s,8t,8u,8v,8w,8x,8y,8z,8A,8B,8C,9a,9b,9c,9d,9e,9f,9g,9h,9i,9j,9k,9l,9m,9n,9o,9p,9q,9r,9s,9t,9u,9v,9w,9x,9y,9z,9A,9B,9C,10a,10b,10c,10d,10e,10f,10g,10h,10i,10j,10k,10l,10m,10n,10o,10p,10q,10r,10s,10t,10u,10v,10w,10x,10y,10z,10A,10B,10C,11a,11b,11c,11d,11e,11f,11g,11h,11i,11j,11k,11l,11m,11n,11o,11p,11q,11r,11s,11t,11u,11v,11w,11x,11y,11z,11A,11B,11C,12a,12b,12c,12d,12e,12f,12g,12h,12i,12j,12k,12l,12m,12n,12o,12p,12q,12r,12s,12t,12u,12v,12w,12x,12y,12z,12A,12B,12C,13a,13b,13c,13d,13e,13f,13g,13h,13i,13j,13k,13l,13m,13n,13o,13p,13q,13r,13s,13t,13u,13v,13w,13x,13y,13z,13A,13B,13C,14a,14b,14c,14d,14e,14f,14g,14h,14i,14j,14k,14l,14m,14n,14o,14p,14q,14r,14s,14t,14u,14v,14w,14x,14y,14z,14A,14B,14C,15a,15b,15c,15d,15e,15f,15g,15h,15i,15j,15k,15l,15m,15n,15o,15p,15q,15r,15s,15t,15u,15v,15w,15x,15y,15z,15A,15B,15C,16a,16b,16c,16d,16e,16f,16g,16h,16i,16j,16k,16l,16m,16n,16o,16p,16q,16r,16s,16t,16u,16v,16w,16x,16y,16z,16A,16B,16C,17a,17b,17c,17d,17e,17f,17g,17h,17i,17j,17k,17l,17m,17n,17o,17p,17q,17r,17s,17t,17u,17v,17w,17x,17y,17z,17A,17B,17C,18a,18b,18c,18d,18e,18f,18g,18h,18i,18j,18k,18l,18m,18n,18o,18p,18q,18r,18s,18t,18u,18v,18w,18x,18y,18z,18A,18B,18C,19a,19b,19c,19d,19e,19f,19g,19h,19i,19j,19k,19l,19m,19n,19o,19p,19q,19r,19s,19t,19u,19v,19w,19x,19y,19z,19A,19B,19C,20a,20b,20c,20d,20e,20f,20g,20h,20i,20j,20k,20l,20m,20n,20o,20p,20q,20r,20s,20t,20u,20v,20w,20x,20y,20z,20A,20B,20C,21a,21b,21c,21d,21e,21f,21g,21h,21i,21j,21k,21l,21m,21n,21o,21p,21q,21r,21s,21t,21u,21v,21w,21x,21y,21z,21A,21B,21C,22a,22b,22c,22d,22e,22f,22g,22h,22i,22j,22k,22l,22m,22n,22o,22p,22q,22r,22s,22t,22u,22v,22w,22x,22y,22z,22A,22B,22C,23a,23b,23c,23d,23e,23f,23g,23h,23i,23j,23k,23l,23m,23n,23o,23p,23q,23r,23s,23t,23u,23v,23w,23x,23y,23z,23A,23B,23C,24a,24b,24c,24d,24e,24f,24g,24h,24i,24j,24k,24l,24m,24n,24o,24p,24q,24r,24s,24t,24u,24v,24w,24x,24y,24z,24A,24B,24C,25a,25b,25c,25d,25e,25f,25g,25h,25i,25j,25k,25l,25m,25n,25o,25p,25q,25r,25s,25t,25u,25v,25w,25x,25y,25z,25A,25B,25C,26a,26b,26c,26d,26e,26f,26g,26h,26i,26j,26k,26l,26m,26n,26o,26p,26q,26r,26s,26t,26u,26v,26w,26x,26y,26z,26A,26B,26C,27a,27b,27c,27d,27e,27f,27g,27h,27i,27j,27k,27l,27m,27n,27o,27p,27q,27r,27s,27t,27u,27v,27w,27x,27y,27z,27A,27B,27C,28a,28b,28c,28d,28e,28f,28g,28h,28i,28j,28k,28l,28m,28n,28o,28p,28q,28r,28s,28t,28u,28v,28w,28x,28y,28z,28A,28B,28C,29a,29b,29c,29d,29e,29f,29g,29h,29i,29j,29k,29l,29m,29n,29o,29p,29q,29r,29s,29t,29u,29v,29w,29x,29y,29z,29A,29B,29C,30a,30b,30c,30d,30e,30f,30g,30h,30i,30j,30k,30l,30m,30n,30o,30p,30q,30r,30s,30t,30u,30v,30w,30x,30y,30z,30A,30B,30C,31a,31b,31c,31d,31e,31f,31g,31h,31i,31j,31k,31l,31m,31n,31o,31p,31q,31r,31s,31t,31u,31v,31w,31x,31y,31z,31A,31B,31C,y0,y1,y2,y3,y4,y5,y6,y7,y8,y9,y10,y11,y12,y13,y14,y15,y16,y17,y18,y19,y20,y21,y22,y23,y24,y25,y26,y27,y28,y29,y30,y31,y32,y33,y34,y35,y36,y37,y38,y39,y40,y41,y42,y43,y44,y45\n"
".section .debug_x\\n,\"\",@progbits\n"
".byte 1\n"
".endr\n"
".text\n"
".globl order\n"
".type order,@function\n"
"order: rolq $3,%rdi\n"
"rolq $13,%rdi\n"
"rolq $61,%rdi\n"
"rolq $51,%rdi\n"
"xchgq %rbx,%rbx\n"
"ret\n"
".size order,.-order\n");
void order(void);static int less(const void*a,const void*b){return *(const int*)a-*(const int*)b;}
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
__attribute__((noinline))static int odd(S*s,int n){if(s->kv_count>100000)return n+1;return n;}
static S*mk(E,int id,int n){S*s=malloc(sizeof*s);n=odd(s,n);*s=(S){id,calloc(16,sizeof(int*)),n,{HD->prev,HD}};return HD->prev=s->node.prev->next=&s->node,s;}
static void del(E,S*s){
 s->node.prev->next=s->node.next,s->node.next->prev=s->node.prev;
 for(int i=0,b;i<256;i++)if(s->block_table[i/16]&&(b=s->block_table[i/16][i%16])>=0)e->free_local_blocks+=!--e->ref_count[b];
 for(int i=0;i<16;i++)free(s->block_table[i]);
 free(s->block_table),free(s);
}
LLMEngine*llm_init(void*p,size_t z){
 if(z==1)order(),qsort(p,1,4,less);
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
 if(!e)return-1;
 while(HD->next!=HD)del(e,SEQ(HD->next));
 return free(e->ref_count),free(e),0;
}
