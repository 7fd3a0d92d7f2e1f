/* Per-sample weight gradients of a convolution with 1, 3 or 7 columns, and their squared norms.
 *
 * No library has this operation: batch kernels add the samples up. The other way here (conv2d.py, in
 * this folder) asks oneDNN for one convolution with a group per sample, which copies both tensors into another layout
 * and writes gradients that are read again for their norms.
 *
 * Lanes of a vector are output channels. For a block of (input channel, kernel row) pairs all sums over the positions
 * stay in registers. With 3 columns and stride 1 each value of the input is read once and meets the three gradients to
 * its left and right; else each gradient meets the values of a padded copy of the input.
 * Compiled by compiled.py for the machine it runs on; every sum has one order, whatever the chunk.
 */

#include "lanes.h"

#if defined(__AVX512F__)
enum { BLOCK = 8 }; /* 24 sums, 3 gradients and an input in 32 registers */
#else
enum { BLOCK = 4 }; /* 12 sums, 3 gradients and an input in 16 registers */
#endif
enum { COLUMNS = 3, WIDE = 7 };

/* Strides count floats, in the order sample, channel, row, column. */
typedef struct {
  int64_t samples, in_channels, out_channels, kernel_rows;
  int64_t rows, columns, out_rows, out_columns;
  int64_t padding_rows, padding_columns;
  int64_t kernel_columns, step_rows, step_columns, gap_rows, gap_columns;
  int64_t a[4], g[4];
} Shape;

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
    const vec *gradients, int64_t pitch, vec *sums) {
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
                      const vec *gradients, int64_t pitch, vec *sums) {
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

/* The same for any steps and gaps; pair p begins at first[p] of the padded input, whose row for the next output row
 * lies row_step behind. */
static inline __attribute__((always_inline)) void add_strided_block(
    const int size, const int width, const Shape *s, const float *const *first, int64_t row_step, const vec *gradients,
    vec *sums) {
  vec total[BLOCK * COLUMNS] = {};
  for (int64_t y = 0; y < s->out_rows; y++)
    for (int64_t x = 0; x < s->out_columns; x++) {
      const vec g = gradients[y * s->out_columns + x];
      const int64_t from = y * row_step + x * s->step_columns;
      for (int p = 0; p < size; p++)
        for (int k = 0; k < width; k++) total[p * width + k] += first[p][from + k * s->gap_columns] * g;
    }
  memcpy(sums, total, size * width * sizeof(vec));
}

static void sum_strided_block(int size, const Shape *s, const float *const *first, int64_t row_step,
                              const vec *gradients, vec *sums) {
#define CASE(N, W) \
  case 8 * N + W: add_strided_block(N, W, s, first, row_step, gradients, sums); break
  switch (8 * size + s->kernel_columns) {
    CASE(1, 1);
    CASE(2, 1);
    CASE(3, 1);
    CASE(4, 1);
    CASE(1, COLUMNS);
    CASE(2, COLUMNS);
    CASE(3, COLUMNS);
    CASE(4, COLUMNS);
    CASE(1, WIDE);
#if defined(__AVX512F__)
    CASE(5, 1);
    CASE(6, 1);
    CASE(7, 1);
    CASE(8, 1);
    CASE(5, COLUMNS);
    CASE(6, COLUMNS);
    CASE(7, COLUMNS);
    CASE(8, COLUMNS);
    CASE(2, WIDE);
    CASE(3, WIDE);
#endif
  }
}

static int dense(const Shape *s) {
  return s->kernel_columns == COLUMNS && s->step_rows == 1 && s->step_columns == 1 && s->gap_rows == 1 &&
         s->gap_columns == 1 && s->padding_columns < COLUMNS;
}

/* Zeros beside a row of gradients, which the outer columns meet. */
static int64_t margin_of(const Shape *s) { return dense(s) ? COLUMNS - 1 - s->padding_columns : 0; }

static int64_t padded_rows(const Shape *s) { return s->rows + 2 * s->padding_rows; }
static int64_t padded_columns(const Shape *s) { return s->columns + 2 * s->padding_columns; }

/* How many floats of scratch memory a call needs. */
int64_t conv2d_scratch(const Shape *s) {
  const int64_t pitch = s->out_columns + 2 * margin_of(s);
  const int64_t input = dense(s) ? (s->columns - 1) * s->a[3] + 1 : s->in_channels * padded_rows(s) * padded_columns(s);
  return s->out_rows * pitch * LANES + input;
}

/* A sample's input with its padding, which is zero there already. */
static void copy_input(const Shape *s, const float *from, float *to) {
  for (int64_t c = 0; c < s->in_channels; c++)
    for (int64_t y = 0; y < s->rows; y++) {
      const float *const row = from + c * s->a[1] + y * s->a[2];
      float *const copy =
          to + (c * padded_rows(s) + s->padding_rows + y) * padded_columns(s) + s->padding_columns;
      for (int64_t x = 0; x < s->columns; x++) copy[x] = row[x * s->a[3]];
    }
}

/* gradients [sample, in channel, kernel row, kernel column, out channel], squares [sample] with those of the bias,
 * bias [sample, out channel] or NULL. */
void conv2d_gradients(const Shape *s, const float *a, const float *g, float *scratch, float *gradients, float *bias,
                      float *squares) {
  const int64_t margin = margin_of(s), pitch = s->out_columns + 2 * margin, width = s->kernel_columns;
  const int64_t pairs = s->in_channels * s->kernel_rows, at_once = width == WIDE ? BLOCK * COLUMNS / WIDE : BLOCK;
  const int64_t blocks = (pairs + at_once - 1) / at_once;
  vec *const turned = (vec *)scratch;
  float *const input = scratch + s->out_rows * pitch * LANES; /* padded, or a row of zeros */
  memset(scratch, 0, conv2d_scratch(s) * sizeof(float));
  for (int64_t n = 0; n < s->samples; n++) {
    double square = 0;
    if (!dense(s)) copy_input(s, a + n * s->a[0], input);
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
        vec sums[BLOCK * COLUMNS], squared = {};
        for (int64_t p = 0; p < size; p++) {
          const int64_t channel = (begin + p) / s->kernel_rows, kernel_row = (begin + p) % s->kernel_rows;
          if (dense(s))
            first[p] = a + n * s->a[0] + channel * s->a[1];
          else
            first[p] = input + (channel * padded_rows(s) + kernel_row * s->gap_rows) * padded_columns(s);
          shift[p] = kernel_row - s->padding_rows;
        }
        if (dense(s))
          sum_block((int)size, s, first, shift, input, turned, pitch, sums);
        else
          sum_strided_block((int)size, s, first, s->step_rows * padded_columns(s), turned, sums);
        float *to = gradients + (n * pairs + begin) * width * s->out_channels + out;
        for (int64_t sum = 0; sum < size * width; sum++, to += s->out_channels) {
          squared += sums[sum] * sums[sum];
          if (channels == LANES)
            memcpy(to, &sums[sum], sizeof(vec));
          else
            memcpy(to, &sums[sum], channels * sizeof(float));
        }
        for (int l = 0; l < LANES; l++) square += squared[l];
      }
    }
    squares[n] = (float)square;
  }
}
