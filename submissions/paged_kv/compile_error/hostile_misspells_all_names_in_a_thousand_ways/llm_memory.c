/* Exhaustion: none of the six functions, and a thousand functions with names like theirs.
 * Held: similar names are looked for among a thousand. */
#define N(a,b) void a##b##eqn_fo_rkllm(void);void a##b##eqn_fo_rkllm(void){}
#define T(a,b) N(a,b##0)N(a,b##1)N(a,b##2)N(a,b##3)N(a,b##4)N(a,b##5)N(a,b##6)N(a,b##7)N(a,b##8)N(a,b##9)
#define H(a,b) T(a,b##0)T(a,b##1)T(a,b##2)T(a,b##3)T(a,b##4)T(a,b##5)T(a,b##6)T(a,b##7)T(a,b##8)T(a,b##9)
#define K(a) H(a,0)H(a,1)H(a,2)H(a,3)H(a,4)H(a,5)H(a,6)H(a,7)H(a,8)H(a,9)
K(create_)
