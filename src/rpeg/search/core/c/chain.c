/* Simulated annealing within a structure. It stops where a table lacks a row, and goes on after. */
#include "core.h"

#include <math.h>

/* Of memory that is missing: the step counts as longer by so many times the share that is missing. */
static const double PENALTY = 6.0, UNFIT = 0.2, NEVER = 1e300;

typedef struct {
    num step, steps, placed, evaluations, accepted;
    num allowance;                                         /* for rows that are missing: what they cost to ask, see PRICES */
    Random random;
    double hot, cold;                                      /* of the temperature, in mean worsenings */
    double spread;                                         /* mean worsening of the objective, as moves show it */
    double now, best, best_seconds;                        /* objectives; seconds of the best, inf where it does not fit */
} Chain;

/* What a chain minimises: the logarithm of the step, lengthened by missing memory. */
double rpeg_objective(double seconds, double shortage)
{
    if (seconds >= NEVER) return NEVER;
    return log(seconds > 1e-12 ? seconds : 1e-12) + (shortage > 0.0 ? log(1.0 + PENALTY * shortage) + UNFIT : 0.0);
}

/* What it costs to ask for a row that is missing, about in milliseconds: options, a level of a cache, a transfer. */
static const num PRICES[] = {0, 0, 25, 12, 1};

/* Rows are asked for where the step may be no longer than so many times what it is. */
static const double HOPES = 1.02;

/* Steps until chain->steps; the code of what is missing, or OK at the end. */
int rpeg_anneal(const Shape *shape, const Rows *rows, const Site *site, State *now, State *trial, State *best, Work *w,
                Chain *c)
{
    for (; c->step < c->steps; c->step++) {
        Random began = c->random;
        copy_state(now, trial);
        if (!move(shape, rows, site, now, trial, &c->random, (int)c->placed)) continue;
        double share = (double)c->step / (double)c->steps;
        double temperature = c->hot > 0.0 ? c->spread * c->hot * pow(c->cold / c->hot, share) : 0.0;
        double threshold = c->now - temperature * log(uniform(&c->random)), seconds, shortage;
        double beyond = threshold < 600.0 ? exp(threshold) * (1.0 + 1e-12) : NEVER;
        double asking = c->allowance <= 0 ? 0.0 : c->now < 600.0 ? HOPES * exp(c->now) : NEVER;
        int code = step_seconds(shape, rows, site, trial, w, beyond, asking, &seconds, &shortage);
        if (code > INVALID) {
            c->random = began;
            c->allowance -= PRICES[code];
            return code;
        }
        c->evaluations++;
        if (code == INVALID) continue;
        double found = rpeg_objective(seconds, shortage), worse = found - c->now;
        if (worse > 0.0 && worse < 1.0) c->spread += 0.02 * (worse - c->spread);
        if (found > threshold) continue;
        copy_state(trial, now);
        c->now = found;
        c->accepted++;
        if (found < c->best - 1e-12) {
            copy_state(trial, best);
            c->best = found;
            c->best_seconds = shortage == 0.0 ? seconds : HUGE_VAL;
        }
    }
    return OK;
}

/* The state of a number: of every stage its mask, option and rest, then the shifts. */
static void unpack(const Shape *shape, State *t, num number, const num *masks, num mask_count, num choices, const num *shifts,
                   num shift_count)
{
    for (int s = 0; s < shape->stages; s++) {
        if (shape->kind[s] == HOST) continue;
        int rests = shape->kind[s] == TRAIN ? 3 : 2;
        t->mask[s] = masks[number % mask_count], number /= mask_count;
        t->option[s] = number % choices, number /= choices;
        t->offload[s] = rests == 3 ? number % 3 : 2 * (number % 2), number /= rests;
    }
    for (int s = 0; s < shape->stages; s++) t->shift[s] = shifts[number % shift_count * shape->stages + s];
}

typedef struct {
    num number, end, evaluations;
    double best;
} Count;

/* Every state of a small space, from count->number to its end; the code of what is missing, or OK at the end. */
int rpeg_exhaust(const Shape *shape, const Rows *rows, const Site *site, State *trial, State *best, Work *w, const num *masks,
                 num mask_count, num choices, const num *shifts, num shift_count, Count *c)
{
    for (; c->number < c->end; c->number++) {
        unpack(shape, trial, c->number, masks, mask_count, choices, shifts, shift_count);
        double seconds, shortage, beyond = c->best < 600.0 ? exp(c->best) * (1.0 + 1e-12) : NEVER;
        int code = step_seconds(shape, rows, site, trial, w, beyond, NEVER, &seconds, &shortage);
        if (code > INVALID) return code;
        c->evaluations++;
        if (code == INVALID || shortage > 0.0) continue;
        double found = rpeg_objective(seconds, shortage);
        if (found >= c->best) continue;
        c->best = found;
        copy_state(trial, best);
    }
    return OK;
}
