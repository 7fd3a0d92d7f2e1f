/* 3x3 convolutions by steps of one, and their per-sample weight gradients, with a quarter of the multiplications.
 *
 * Winograd's minimal filtering F(4x4, 3x3): a tile of 6x6 inputs and the filter are each taken to the values of a
 * polynomial at 6x6 points, multiplied there, and the products taken back to 4x4 outputs: 36 multiplications instead
 * of 144. The weight gradient is the same turned round: a tile of 4x4 gradients and one of 6x6 inputs, multiplied at the
 * same points and added up over the tiles of a sample, and one way back to 3x3 for all of them.
 * The points are 0, infinity and the roots of 1/2 and 2 with both signs: with 1 and 2 the error is twice as large.
 *
 * Lanes of a vector are channels, of which there must be whole vectors. A few tiles at a time stay in the second cache.
 * Compiled by compiled.py for the machine it runs on; every sum has one order, whatever the chunk.
 */

#include "winograd_points.h"

enum { BLOCK = LANES / 2, WIDTH = 2 }; /* tiles x vectors of channels whose sums stay in registers */
enum { TOGETHER = LANES / 4 };         /* in channels whose sums at a column of points do */
/* How many floats of tiles are at hand at once; how few tiles, and how many where they are read again and again. */
enum { CACHED = 96 << 10, FEWEST_TILES = 16, MOST_TILES = 36 };

/* Images are [sample, row, column, channel], or [sample, channel, row, column] where they lie in planes. */
typedef struct {
  int64_t samples, in_channels, out_channels, rows, columns, padding_rows, padding_columns;
  int64_t input_in_planes, output_in_planes;
} Shape;

static int64_t out_rows(const Shape *s) { return s->rows + 2 * s->padding_rows - FILTER + 1; }
static int64_t out_columns(const Shape *s) { return s->columns + 2 * s->padding_columns - FILTER + 1; }
static int64_t tile_columns(const Shape *s) { return (out_columns(s) + STEP - 1) / STEP; }
static int64_t tiles_of(const Shape *s) { return (out_rows(s) + STEP - 1) / STEP * tile_columns(s); }
static int64_t input_size(const Shape *s) { return s->rows * s->columns * s->in_channels; }
static int64_t output_size(const Shape *s) { return out_rows(s) * out_columns(s) * s->out_channels; }

static void input_tile(const Shape *s, const float *image, int64_t tile, float *to, int64_t tiles) {
  const int64_t row = tile / tile_columns(s) * STEP - s->padding_rows;
  const int64_t column = tile % tile_columns(s) * STEP - s->padding_columns;
  tile_to_points(input_to_points, SIDE, image, s->rows, s->columns, s->in_channels, row, column, to, tiles);
}

static void gradient_tile(const Shape *s, const float *image, int64_t tile, float *to, int64_t tiles) {
  const int64_t row = tile / tile_columns(s) * STEP, column = tile % tile_columns(s) * STEP;
  tile_to_points(gradient_to_points, STEP, image, out_rows(s), out_columns(s), s->out_channels, row, column, to, tiles);
}

/* A vector of channels of a tile's output, from rows and columns of points that lie so far apart. */
static void output_tile(const Shape *s, const float *from, int64_t row_step, int64_t column_step, vec bias, int64_t tile,
                        float *image) {
  const int64_t row = tile / tile_columns(s) * STEP, column = tile % tile_columns(s) * STEP;
  const int64_t rows = min(STEP, out_rows(s) - row), columns = min(STEP, out_columns(s) - column);
  float out[STEP * STEP * LANES], *const to = image + (row * out_columns(s) + column) * s->out_channels;
  both_ways(output_from_points, SIDE, STEP, from, row_step, column_step, out, STEP * LANES, LANES);
  for (int64_t y = 0; y < rows; y++)
    for (int64_t x = 0; x < columns; x++)
      store(load(out + (y * STEP + x) * LANES) + bias, to + (y * out_columns(s) + x) * s->out_channels);
}

/* Filters at the points, [vectors of out channels, column, row, in channel, out channel of these vectors]. */
static void filters_to_points(const Shape *s, const float *filters, int64_t of_in, int64_t of_out, int turned,
                              int64_t width, float *to) {
  for (int64_t out = 0; out < s->out_channels; out += LANES)
    for (int64_t in = 0; in < s->in_channels; in++) {
      const float *const from = filters + in * of_in + out * of_out;
      float filter[PLACES * LANES];
      for (int w = 0; w < PLACES; w++)
        for (int l = 0; l < LANES; l++) filter[w * LANES + l] = from[l * of_out + (turned ? PLACES - 1 - w : w)];
      both_ways(filter_to_points, FILTER, SIDE, filter, FILTER * LANES, LANES,
                to + out / width * width * POINTS * s->in_channels + in * width + out % width,
                s->in_channels * width, SIDE * s->in_channels * width);
    }
}

/* Products at one point of some tiles, with vectors of out channels; in channels lie in vectors `pitch` apart. */
static inline __attribute__((always_inline)) void multiply_block(const int tiles, const int width, int64_t channels,
                                                                 const float *values, int64_t pitch,
                                                                 const float *filters, float *to) {
  vec total[BLOCK][WIDTH] = {};
  for (int64_t vector = 0; vector < channels / LANES; vector++, values += pitch)
    for (int c = 0; c < LANES; c++, filters += width * LANES)
      for (int w = 0; w < width; w++) {
        const vec filter = load(filters + w * LANES);
        for (int t = 0; t < tiles; t++) total[t][w] += values[t * LINE + c] * filter;
      }
  for (int t = 0; t < tiles; t++)
    for (int w = 0; w < width; w++) store(total[t][w], to + (t * SIDE * width + w) * LANES);
}

static void multiply(int tiles, int width, int64_t channels, const float *values, int64_t pitch, const float *filters,
                     float *to) {
#define CASE(N) \
  case 2 * N + 1: multiply_block(N, 1, channels, values, pitch, filters, to); break; \
  case 2 * N + 2: multiply_block(N, 2, channels, values, pitch, filters, to); break
  switch (2 * tiles + width) { /* constants keep the sums in registers */
    CASE(1);
    CASE(2);
    CASE(3);
    CASE(4);
#if defined(__AVX512F__)
    CASE(5);
    CASE(6);
    CASE(7);
    CASE(8);
#endif
  }
}

/* The gradient of the filters from a vector of in channels to one of out channels, from some tiles of a sample: on top
 * of what earlier ones gave. Sums over the tiles are taken at a column of points at a time. Returns its square. */
static double add_gradient(int64_t tiles, int64_t pitch, const float *values, const float *slopes, int first, float *to,
                           int64_t out_channels) {
  vec half[LANES][FILTER][SIDE], turned[FILTER], squared = {};
  for (int x = 0; x < SIDE; x++)
    for (int begin = 0; begin < LANES; begin += TOGETHER) {
      vec total[TOGETHER][SIDE] = {};
      const float *value = values + x * pitch + begin, *slope = slopes + x * pitch;
      for (int64_t t = 0; t < tiles; t++, value += LINE, slope += LINE)
#pragma GCC unroll 6
        for (int y = 0; y < SIDE; y++) {
          const vec one = load(slope + y * LANES);
#pragma GCC unroll 4
          for (int c = 0; c < TOGETHER; c++) total[c][y] += value[y * LANES + c] * one;
        }
#pragma GCC unroll 4
      for (int c = 0; c < TOGETHER; c++) {
        filter_from_points(total[c], turned);
#pragma GCC unroll 3
        for (int y = 0; y < FILTER; y++) half[begin + c][y][x] = turned[y];
      }
    }
  for (int c = 0; c < LANES; c++)
#pragma GCC unroll 3
    for (int y = 0; y < FILTER; y++) {
      filter_from_points(half[c][y], turned);
#pragma GCC unroll 3
      for (int x = 0; x < FILTER; x++, to += out_channels) {
        if (!first) turned[x] += load(to);
        store(turned[x], to);
        squared += turned[x] * turned[x];
      }
    }
  double square = 0;
  for (int l = 0; l < LANES; l++) square += squared[l];
  return square;
}

static int64_t tiles_at_once(int64_t channels, int64_t most) {
  const int64_t tiles = CACHED / (POINTS * channels) / BLOCK * BLOCK;
  return tiles < FEWEST_TILES ? FEWEST_TILES : min(tiles, most);
}

static int64_t width_of(const Shape *s) { return s->out_channels % (WIDTH * LANES) ? LANES : WIDTH * LANES; }

static int64_t samples_at_once(const Shape *s, int64_t tiles) {
  return tiles < tiles_of(s) ? 1 : min(tiles / tiles_of(s), s->samples);
}

/* How many floats of scratch memory a call of winograd_convolve needs. */
int64_t winograd_convolve_scratch(const Shape *s) {
  const int64_t tiles = tiles_at_once(s->in_channels + width_of(s), INT64_MAX), samples = samples_at_once(s, tiles);
  return POINTS * (s->in_channels * s->out_channels + tiles * (s->in_channels + width_of(s))) +
         samples * (s->input_in_planes * input_size(s) + s->output_in_planes * output_size(s));
}

/* y = x * filters + bias, which may be NULL; filters lie of_in and of_out floats apart and may be turned round. */
void winograd_convolve(const Shape *s, const float *x, const float *filters, int64_t of_in, int64_t of_out, int turned,
                       const float *bias, float *scratch, float *y) {
  const int64_t width = width_of(s), at_once = tiles_at_once(s->in_channels + width, INT64_MAX), each = tiles_of(s);
  const int64_t samples = samples_at_once(s, at_once);
  float *const at_points = scratch, *const values = at_points + POINTS * s->in_channels * s->out_channels;
  float *const products = values + POINTS * at_once * s->in_channels, *const inputs = products + POINTS * at_once * width;
  float *const outputs = inputs + (s->input_in_planes ? samples * input_size(s) : 0);
  filters_to_points(s, filters, of_in, of_out, turned, width, at_points);
  for (int64_t n = 0; n < s->samples; n += samples) {
    const int64_t several = min(samples, s->samples - n);
    const float *from = x + n * input_size(s);
    float *const to = y + n * output_size(s), *const made = s->output_in_planes ? outputs : to;
    if (s->input_in_planes) {
      for (int64_t i = 0; i < several; i++)
        turn(from + i * input_size(s), s->in_channels, s->rows * s->columns, inputs + i * input_size(s));
      from = inputs;
    }
    for (int64_t begin = 0; begin < several * each; begin += at_once) {
      const int64_t tiles = min(at_once, several * each - begin), blocks = (tiles + BLOCK - 1) / BLOCK;
      for (int64_t t = 0; t < tiles; t++)
        input_tile(s, from + (begin + t) / each * input_size(s), (begin + t) % each, values + t * LINE, tiles);
      for (int64_t out = 0; out < s->out_channels; out += width) {
        for (int p = 0; p < POINTS; p++)
          for (int64_t block = 0; block < blocks; block++) {
            const int64_t first = block * tiles / blocks, size = (block + 1) * tiles / blocks - first;
            const int64_t at = (p / SIDE * tiles + first) * SIDE + p % SIDE;
            multiply((int)size, (int)(width / LANES), s->in_channels, values + at * LANES, SIDE * tiles * LINE,
                     at_points + (out * POINTS + p * width) * s->in_channels, products + at * width);
          }
        for (int64_t t = 0; t < tiles; t++)
          for (int64_t c = 0; c < width; c += LANES)
            output_tile(s, products + t * SIDE * width + c, width, tiles * SIDE * width,
                        bias == NULL ? (vec){} : load(bias + out + c), (begin + t) % each,
                        made + (begin + t) / each * output_size(s) + out + c);
      }
    }
    if (s->output_in_planes)
      for (int64_t i = 0; i < several; i++)
        turn(outputs + i * output_size(s), out_rows(s) * out_columns(s), s->out_channels, to + i * output_size(s));
  }
}

/* How many floats of scratch memory a call of winograd_gradients needs. */
int64_t winograd_gradients_scratch(const Shape *s) {
  const int64_t channels = s->in_channels + s->out_channels, at_once = tiles_at_once(channels, MOST_TILES);
  return POINTS * at_once * channels + s->input_in_planes * input_size(s) + s->output_in_planes * output_size(s);
}

/* The sum of each channel; returns the sum of their squares. */
static double sum_places(const float *image, int64_t places, int64_t channels, float *to) {
  double square = 0;
  for (int64_t c = 0; c < channels; c += LANES) {
    vec sum = {};
    for (int64_t p = 0; p < places; p++) sum += load(image + p * channels + c);
    store(sum, to + c);
    for (int l = 0; l < LANES; l++) square += (double)sum[l] * sum[l];
  }
  return square;
}

/* gradients [sample, in channel, kernel row, kernel column, out channel], squares [sample] with those of the bias,
 * bias [sample, out channel] or NULL. */
void winograd_gradients(const Shape *s, const float *a, const float *g, float *scratch, float *gradients, float *bias,
                        float *squares) {
  const int64_t ins = s->in_channels, outs = s->out_channels, each = tiles_of(s);
  const int64_t at_once = tiles_at_once(ins + outs, MOST_TILES);
  float *const values = scratch, *const slopes = values + POINTS * at_once * ins;
  float *const input = slopes + POINTS * at_once * outs, *const output = input + (s->input_in_planes ? input_size(s) : 0);
  for (int64_t n = 0; n < s->samples; n++) {
    const float *from = a + n * input_size(s), *slope = g + n * output_size(s);
    if (s->input_in_planes) turn(from, ins, s->rows * s->columns, input), from = input;
    if (s->output_in_planes) turn(slope, outs, out_rows(s) * out_columns(s), output), slope = output;
    double square = 0;
    for (int64_t begin = 0; begin < each; begin += at_once) {
      const int64_t tiles = min(at_once, each - begin), pitch = tiles * LINE;
      for (int64_t t = 0; t < tiles; t++) {
        input_tile(s, from, begin + t, values + t * LINE, tiles);
        gradient_tile(s, slope, begin + t, slopes + t * LINE, tiles);
      }
      square = 0; /* of the sums so far */
      for (int64_t in = 0; in < ins; in += LANES)
        for (int64_t out = 0; out < outs; out += LANES)
          square += add_gradient(tiles, pitch, values + in * SIDE * pitch / LANES, slopes + out * SIDE * pitch / LANES,
                                 begin == 0, gradients + (n * ins + in) * PLACES * outs + out, outs);
    }
    if (bias != NULL) square += sum_places(slope, out_rows(s) * out_columns(s), outs, bias + n * outs);
    squares[n] = (float)square;
  }
}

/* Images from one layout to the other: rows x columns are channels x places of planes, or places x channels. */
void winograd_turn(int64_t samples, int64_t rows, int64_t columns, const float *from, float *to) {
  for (int64_t n = 0; n < samples; n++) turn(from + n * rows * columns, rows, columns, to + n * rows * columns);
}
