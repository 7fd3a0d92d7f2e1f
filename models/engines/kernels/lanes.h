/* A vector of the machine's lanes, and matrices turned by blocks of them. */

#pragma once

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX2__) && defined(__FMA__) && !defined(__clang__) /* clang 14 does not keep sums in registers there */
enum { LANES = 8 };
#else
#error "oneDNN is faster here"
#endif

typedef float vec __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float)), may_alias));
typedef int32_t indices __attribute__((vector_size(LANES * sizeof(int32_t))));

static inline int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }

/* Not by memcpy, which gcc 12 makes of two halves and by way of the stack. */
static inline vec load(const float *from) { return *(const vec *)from; }
static inline void store(vec value, float *to) { *(vec *)to = value; }

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
static inline void transpose(const float *from, int64_t row, vec *to) {
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

/* Planes of `columns` values turned into as many places with `rows` values. */
static inline void turn(const float *from, int64_t rows, int64_t columns, float *to) {
  for (int64_t x = 0; x < columns; x += LANES) {
    const int64_t at = x + LANES <= columns || columns < LANES ? x : columns - LANES; /* it may overlap the last */
    for (int64_t y = 0; y < rows; y += LANES) {
      const int64_t by = y + LANES <= rows || rows < LANES ? y : rows - LANES;
      if (rows >= LANES && columns >= LANES) {
        vec block[LANES];
        transpose(from + by * columns + at, columns, block);
        for (int l = 0; l < LANES; l++) store(block[l], to + (at + l) * rows + by);
      } else {
        for (int64_t r = by; r < min(rows, by + LANES); r++)
          for (int64_t c = at; c < min(columns, at + LANES); c++) to[c * rows + r] = from[r * columns + c];
      }
    }
  }
}
