# make           compiles @SOURCE@ as the handout demands
# make check     grades it by the public cases; `./check` is the same and takes options
# make problems  the same, a line for each cause as gcc writes it: for your editor
# make clean     takes away what was made
FLAGS = -std=c11 -Wall -Wextra -Wpedantic -Werror -O2 -ggdb

.PHONY: build check problems clean
build: @STEM@.o

@STEM@.o: @SOURCE@ @STEM@.h
	gcc $(FLAGS) -c @SOURCE@ -o @STEM@.o

check:
	./check

problems:
	./check --format gnu

# A main program of your own beside it: `make mine` builds mine.c with @SOURCE@.
%: %.c @SOURCE@ @STEM@.h
	gcc $(FLAGS) @SOURCE@ $< -o $@

clean:
	rm -f @STEM@.o
