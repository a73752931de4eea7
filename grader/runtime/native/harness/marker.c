/* Stands before the student's object in the link: from here on thread-local data is the student's (see harness.c). */
extern _Thread_local char harness_first_tdata, harness_first_tbss;
_Thread_local char harness_first_tdata = 1;
_Thread_local char harness_first_tbss;
