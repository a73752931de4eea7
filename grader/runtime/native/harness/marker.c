/* Comes before the student's object in the link: thread-local data from here on is the student's (see heap.c). */
extern _Thread_local char harness_first_tdata, harness_first_tbss;
_Thread_local char harness_first_tdata = 1;
_Thread_local char harness_first_tbss;
