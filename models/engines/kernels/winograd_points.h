/* The points of winograd_kernel.c, and the ways there and back: of inputs, filters, outputs, and their gradients. */

#pragma once

#include "lanes.h"

enum { STEP = 4, SIDE = 6, POINTS = SIDE * SIDE, FILTER = 3, PLACES = FILTER * FILTER };
enum { LINE = SIDE * LANES }; /* floats of a column of points, for a vector of channels */

static const float A = 0.70710678118654752440f, B = 1.41421356237309504880f; /* points; A * B is 1 */

/* Between a line of values and the points, one of the two dimensions at a time. */
static inline void input_to_points(const vec *d, vec *to) {
  const vec even_a = d[4] - 2.0f * d[2], odd_a = d[3] - 2.0f * d[1];
  const vec even_b = d[4] - 0.5f * d[2], odd_b = d[3] - 0.5f * d[1];
  to[0] = (d[0] + d[4]) - 2.5f * d[2];
  to[1] = even_a + A * odd_a;
  to[2] = even_a - A * odd_a;
  to[3] = even_b + B * odd_b;
  to[4] = even_b - B * odd_b;
  to[5] = (d[1] + d[5]) - 2.5f * d[3];
}

static inline void filter_to_points(const vec *w, vec *to) {
  const vec even_a = (-2.0f / 3) * w[0] + (-1.0f / 3) * w[2], odd_a = (-2.0f / 3) * A * w[1];
  const vec even_b = (1.0f / 6) * w[0] + (1.0f / 3) * w[2], odd_b = (1.0f / 6) * B * w[1];
  to[0] = w[0];
  to[1] = even_a + odd_a;
  to[2] = even_a - odd_a;
  to[3] = even_b + odd_b;
  to[4] = even_b - odd_b;
  to[5] = w[2];
}

static inline void output_from_points(const vec *m, vec *to) {
  const vec sum_a = m[1] + m[2], difference_a = m[1] - m[2], sum_b = m[3] + m[4], difference_b = m[3] - m[4];
  to[0] = m[0] + sum_a + sum_b;
  to[1] = A * difference_a + B * difference_b;
  to[2] = 0.5f * sum_a + 2.0f * sum_b;
  to[3] = m[5] + 0.5f * A * difference_a + 2.0f * B * difference_b;
}

static inline void gradient_to_points(const vec *g, vec *to) {
  const vec even_a = g[0] + 0.5f * g[2], odd_a = g[1] + 0.5f * g[3];
  const vec even_b = g[0] + 2.0f * g[2], odd_b = g[1] + 2.0f * g[3];
  to[0] = g[0];
  to[1] = even_a + A * odd_a;
  to[2] = even_a - A * odd_a;
  to[3] = even_b + B * odd_b;
  to[4] = even_b - B * odd_b;
  to[5] = g[3];
}

static inline void filter_from_points(const vec *p, vec *to) {
  const vec sum_a = p[1] + p[2], difference_a = p[1] - p[2], sum_b = p[3] + p[4], difference_b = p[3] - p[4];
  to[0] = p[0] + (-2.0f / 3) * sum_a + (1.0f / 6) * sum_b;
  to[1] = (-2.0f / 3) * A * difference_a + (1.0f / 6) * B * difference_b;
  to[2] = p[5] + (-1.0f / 3) * sum_a + (1.0f / 3) * sum_b;
}

typedef void Way(const vec *, vec *);

/* A square of vectors, `from` by `from`, to one of `to` by `to`: each column, then each row. Their rows and columns lie
 * so many floats apart. */
static inline __attribute__((always_inline)) void both_ways(Way way, const int from, const int to, const float *square,
                                                            int64_t row, int64_t column, float *out, int64_t out_row,
                                                            int64_t out_column) {
  vec half[SIDE][SIDE], line[SIDE], turned[SIDE];
#pragma GCC unroll 6
  for (int x = 0; x < from; x++) {
#pragma GCC unroll 6
    for (int y = 0; y < from; y++) line[y] = load(square + y * row + x * column);
    way(line, turned);
#pragma GCC unroll 6
    for (int y = 0; y < to; y++) half[y][x] = turned[y];
  }
#pragma GCC unroll 6
  for (int y = 0; y < to; y++) {
    way(half[y], turned);
#pragma GCC unroll 6
    for (int x = 0; x < to; x++) store(turned[x], out + y * out_row + x * out_column);
  }
}

/* Tile number `tile` of an image at the points, [vector of channels, point column, tile, point row, channel] of so many
 * tiles; what lies outside of the image is zero. */
static inline __attribute__((always_inline)) void tile_to_points(Way way, const int side, const float *image,
                                                                 int64_t rows, int64_t columns, int64_t channels,
                                                                 int64_t row, int64_t column, float *to,
                                                                 int64_t tiles) {
  const float *const first = image + (row * columns + column) * channels;
  const int inside = row >= 0 && column >= 0 && row + side <= rows && column + side <= columns;
  for (int64_t c = 0; c < channels; c += LANES, to += SIDE * tiles * LINE) {
    if (inside) {
      both_ways(way, side, SIDE, first + c, columns * channels, channels, to, LANES, tiles * LINE);
      continue;
    }
    float patch[SIDE * SIDE * LANES];
    for (int y = 0; y < side; y++)
      for (int x = 0; x < side; x++) {
        const int is_there = (uint64_t)(row + y) < (uint64_t)rows && (uint64_t)(column + x) < (uint64_t)columns;
        store(is_there ? load(first + (y * columns + x) * channels + c) : (vec){}, patch + (y * side + x) * LANES);
      }
    both_ways(way, side, SIDE, patch, side * LANES, LANES, to, LANES, tiles * LINE);
  }
}
