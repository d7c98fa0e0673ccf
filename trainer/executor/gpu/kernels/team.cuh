// A team is the threads of a block that reduce one row together. Their number is
// a power of two that depends on the length of the row alone.
#pragma once
#include "common.cuh"

struct Team {
	u32 lanes, lane; // threads of the team; number of this thread among them
	u32 rows, row;   // teams of the block; number of this team
};

// make_team divides a block of 256 threads. Neighbouring threads belong to the
// same team, or, with across, to neighbouring teams.
DEVICE Team make_team(u32 lanes, u32 across) {
	Team t;
	u32 i = THREAD_X;
	t.lanes = lanes;
	t.rows = 256 / lanes;
	t.lane = across ? i / t.rows : i % lanes;
	t.row = across ? i % t.rows : i / lanes;
	return t;
}

// Teams take rows that lie one grid apart. All threads of a block take part in
// every round, because they meet at barriers: a row may be past the last one.
#define EACH_ROW(r, team, count) \
	for (u32 first_##r = BLOCK_X * (team).rows, r = first_##r + (team).row; first_##r < (count); \
		first_##r += BLOCKS_X * (team).rows, r = first_##r + (team).row)

template <typename T> DEVICE T sum_of(T x, T y) { return x + y; }

// The tree of a team: lane i takes what lane i + lanes/2 has, then lanes/4, and
// so on. Every thread of the team returns the result.
#define TREE(NAME, COMBINE) \
	template <typename T> DEVICE T NAME(T *shared, Team t, T x) { \
		T *mine = shared + t.row * t.lanes; \
		mine[t.lane] = x; \
		for (u32 half = t.lanes / 2; half > 0; half /= 2) { \
			BARRIER(); \
			if (t.lane < half) { \
				mine[t.lane] = COMBINE(mine[t.lane], mine[t.lane + half]); \
			} \
		} \
		BARRIER(); \
		x = mine[0]; \
		BARRIER(); \
		return x; \
	}
TREE(team_sum, sum_of)
TREE(team_max, larger)
