/* A native program on a GPU: takes the MiB of each argument in turn and keeps them; `-` gives all back. It ends with 3 where the
   driver has no room, and goes on with half where the argument ends in `?`. `wPATH` writes a line to that pipe, and waits for one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **words) {
    int (*take)(void **, size_t) = (int (*)(void **, size_t))dlsym(RTLD_DEFAULT, "cudaMalloc");
    int (*give)(void *) = (int (*)(void *))dlsym(RTLD_DEFAULT, "cudaFree");
    void *held[64];
    int kept = 0;
    if (!take || !give) return 4;
    for (int i = 1; i < count && kept < 64; i++) {
        if (!strcmp(words[i], "-")) {
            while (kept) give(held[--kept]);
            continue;
        }
        if (words[i][0] == 'w') {
            char line[8];
            FILE *pipe = fopen(words[i] + 1, "w");
            if (!pipe || fputs("held\n", pipe) < 0 || fclose(pipe)) return 5;
            pipe = fopen(words[i] + 1, "r");
            if (!pipe || !fgets(line, sizeof line, pipe)) return 5;
            continue;
        }
        size_t bytes = (size_t)atol(words[i]) << 20;
        if (take(&held[kept], bytes)) {
            if (!strchr(words[i], '?') || take(&held[kept], bytes / 2)) return 3;
        }
        kept++;
    }
    return 0;
}
