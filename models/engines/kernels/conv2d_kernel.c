/* Per-sample weight gradients of a 3-column convolution with stride 1, and their squared norms.
 *
 * No library has this operation: batch kernels add the samples up. The other way here (conv2d.py, in
 * this folder) asks oneDNN for one convolution with a group per sample, which copies both tensors into another layout
 * and writes gradients that are read again for their norms.
 *
 * Lanes of a vector are output channels. For a block of (input channel, kernel row) pairs all sums over the positions
 * stay in registers: each value of the input is read once and meets the three gradients to its left and right.
 * Compiled by compiled.py for the machine it runs on; every sum has one order, whatever the chunk.
 */

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
enum { LANES = 16, BLOCK = 8 }; /* 24 sums, 3 gradients and an input in 32 registers */
#elif defined(__AVX2__) && defined(__FMA__) && !defined(__clang__)
enum { LANES = 8, BLOCK = 4 }; /* 12 sums, 3 gradients and an input in 16 registers, which clang 14 does not manage */
#else
#error "oneDNN is faster here"
#endif
enum { COLUMNS = 3 };

typedef float vec __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float))));
typedef int32_t indices __attribute__((vector_size(LANES * sizeof(int32_t))));

/* Strides count floats, in the order sample, channel, row, column. */
typedef struct {
  int64_t samples, in_channels, out_channels, kernel_rows;
  int64_t rows, columns, out_rows, out_columns;
  int64_t padding_rows, padding_columns;
  int64_t a[4], g[4];
} Shape;

/* a[from], b[from], a[from + 1], b[from + 1], ... */
static inline vec interleave(vec a, vec b, const int from) {
#if defined(__clang__)
  vec out = {};
  for (int l = 0; l < LANES / 2; l++) {
    out[2 * l] = a[from + l];
    out[2 * l + 1] = b[from + l];
  }
  return out;
#else
  indices order;
  for (int l = 0; l < LANES / 2; l++) {
    order[2 * l] = from + l;
    order[2 * l + 1] = LANES + from + l;
  }
  return __builtin_shuffle(a, b, order);
#endif
}

/* LANES rows of LANES values, turned. */
static void transpose(const float *from, int64_t row, vec *to) {
  vec a[LANES], b[LANES];
  for (int l = 0; l < LANES; l++) memcpy(&a[l], from + l * row, sizeof(vec));
  for (int done = 1; done < LANES; done *= 2) {
    for (int l = 0; l < LANES / 2; l++) {
      b[2 * l] = interleave(a[l], a[l + LANES / 2], 0);
      b[2 * l + 1] = interleave(a[l], a[l + LANES / 2], LANES / 2);
    }
    memcpy(a, b, sizeof a);
  }
  memcpy(to, a, sizeof a);
}

/* One row of gradients as a vector of channels per column. */
static void load_row(const Shape *s, const float *from, int64_t channels, vec *row) {
  const int64_t width = s->out_columns, channel = s->g[1], column = s->g[3];
  if (channels < LANES) {
    for (int64_t x = 0; x < width; x++)
      for (int64_t c = 0; c < channels; c++) row[x][c] = from[c * channel + x * column];
  } else if (channel == 1) {
    for (int64_t x = 0; x < width; x++) memcpy(row + x, from + x * column, sizeof(vec));
  } else if (column == 1 && width >= LANES) {
    for (int64_t x = 0; x < width - LANES; x += LANES) transpose(from + x, channel, row + x);
    transpose(from + width - LANES, channel, row + width - LANES); /* it may overlap the one before */
  } else {
    for (int64_t c = 0; c < LANES; c++)
      for (int64_t x = 0; x < width; x++) row[x][c] = from[c * channel + x * column];
  }
}

/* The sums of `size` pairs; pair p begins at first[p], its row for output row y is y + shift[p]. */
static inline __attribute__((always_inline)) void add_block(
    const int size, const Shape *s, const float *const *first, const int64_t *shift, const float *zeros,
    const vec *gradients, int64_t pitch, vec sums[BLOCK][COLUMNS]) {
  vec total[BLOCK][COLUMNS] = {};
  for (int64_t y = 0; y < s->out_rows; y++) {
    const float *row[BLOCK];
    int any = 0;
    for (int p = 0; p < size; p++) {
      const int64_t from = y + shift[p];
      const int inside = (uint64_t)from < (uint64_t)s->rows;
      row[p] = inside ? first[p] + from * s->a[2] : zeros;
      any |= inside;
    }
    if (!any) continue;
    const vec *g = gradients + y * pitch;
    vec right = g[0], middle = g[1];
    for (int64_t x = 0; x < s->columns; x++) {
      const vec left = g[x + 2];
      for (int p = 0; p < size; p++) {
        const vec value = row[p][x * s->a[3]] - (vec){};
        total[p][0] += value * left;
        total[p][1] += value * middle;
        total[p][2] += value * right;
      }
      right = middle;
      middle = left;
    }
  }
  memcpy(sums, total, sizeof total);
}

static void sum_block(int size, const Shape *s, const float *const *first, const int64_t *shift, const float *zeros,
                      const vec *gradients, int64_t pitch, vec sums[BLOCK][COLUMNS]) {
#define OF_SIZE(N) \
  case N: add_block(N, s, first, shift, zeros, gradients, pitch, sums); break
  switch (size) { /* a constant keeps the sums in registers */
    OF_SIZE(1);
    OF_SIZE(2);
    OF_SIZE(3);
    OF_SIZE(4);
#if defined(__AVX512F__)
    OF_SIZE(5);
    OF_SIZE(6);
    OF_SIZE(7);
    OF_SIZE(8);
#endif
  }
}

/* How many floats of scratch memory a call needs. */
int64_t conv2d_scratch(const Shape *s) {
  const int64_t pitch = s->out_columns + 2 * (COLUMNS - 1 - s->padding_columns);
  return s->out_rows * pitch * LANES + (s->columns - 1) * s->a[3] + 1;
}

/* gradients [sample, in channel, kernel row, kernel column, out channel], squares [sample] with those of the bias,
 * bias [sample, out channel] or NULL. */
void conv2d_gradients(const Shape *s, const float *a, const float *g, float *scratch, float *gradients, float *bias,
                      float *squares) {
  const int64_t margin = COLUMNS - 1 - s->padding_columns; /* zeros beside a row, which the outer columns meet */
  const int64_t pitch = s->out_columns + 2 * margin, pairs = s->in_channels * s->kernel_rows;
  const int64_t blocks = (pairs + BLOCK - 1) / BLOCK;
  vec *const turned = (vec *)scratch;
  const float *const zeros = scratch + s->out_rows * pitch * LANES;
  memset(scratch, 0, conv2d_scratch(s) * sizeof(float));
  for (int64_t n = 0; n < s->samples; n++) {
    double square = 0;
    for (int64_t out = 0; out < s->out_channels; out += LANES) {
      const int64_t channels = s->out_channels - out < LANES ? s->out_channels - out : LANES;
      vec of_bias = {};
      if (channels < LANES) memset(turned, 0, s->out_rows * pitch * sizeof(vec));
      for (int64_t y = 0; y < s->out_rows; y++) {
        vec *const row = turned + y * pitch + margin;
        load_row(s, g + n * s->g[0] + out * s->g[1] + y * s->g[2], channels, row);
        for (int64_t x = 0; x < s->out_columns; x++) of_bias += row[x];
      }
      if (bias != NULL)
        for (int64_t c = 0; c < channels; c++) {
          bias[n * s->out_channels + out + c] = of_bias[c];
          square += (double)of_bias[c] * of_bias[c];
        }
      for (int64_t block = 0; block < blocks; block++) {
        const int64_t begin = block * pairs / blocks, size = (block + 1) * pairs / blocks - begin;
        const float *first[BLOCK];
        int64_t shift[BLOCK];
        for (int64_t p = 0; p < size; p++) {
          first[p] = a + n * s->a[0] + (begin + p) / s->kernel_rows * s->a[1];
          shift[p] = (begin + p) % s->kernel_rows - s->padding_rows;
        }
        vec sums[BLOCK][COLUMNS], squared = {};
        sum_block((int)size, s, first, shift, zeros, turned, pitch, sums);
        float *to = gradients + (n * pairs + begin) * COLUMNS * s->out_channels + out;
        for (int64_t p = 0; p < size; p++)
          for (int k = 0; k < COLUMNS; k++, to += s->out_channels) {
            squared += sums[p][k] * sums[p][k];
            if (channels == LANES)
              memcpy(to, &sums[p][k], sizeof(vec));
            else
              memcpy(to, &sums[p][k], channels * sizeof(float));
          }
        for (int l = 0; l < LANES; l++) square += squared[l];
      }
    }
    squares[n] = (float)square;
  }
}
