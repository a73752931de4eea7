# make           compiles llm_memory.c as the handout demands
# make check     grades it by the public cases; `./check` is the same and takes options
# make problems  the same, a line for each cause as gcc writes it: for your editor
# make clean     takes away what was made
FLAGS = -std=c11 -Wall -Wextra -Wpedantic -Werror -O2 -ggdb

.PHONY: build check problems clean
build: llm_memory.o

llm_memory.o: llm_memory.c llm_memory.h
	gcc $(FLAGS) -c llm_memory.c -o llm_memory.o

check:
	./check

problems:
	./check --format gnu

# A main program of your own beside it: `make mine` builds mine.c with llm_memory.c.
%: %.c llm_memory.c llm_memory.h
	gcc $(FLAGS) llm_memory.c $< -o $@

clean:
	rm -f llm_memory.o
