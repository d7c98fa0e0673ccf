package machine

import "strings"

// IsSpecial reports whether a name is a special register.
func IsSpecial(name string) bool {
	if base, axis, ok := strings.Cut(name, "."); ok {
		return strings.Contains(" %tid %ntid %ctaid %nctaid ", " "+base+" ") && (axis == "x" || axis == "y" || axis == "z")
	}
	return strings.Contains(" %laneid %warpid %nwarpid WARP_SZ %lanemask_eq %lanemask_lt %lanemask_le %lanemask_gt %lanemask_ge ", " "+name+" ")
}

// blockAxis is the axis of %ctaid, or -1 for a register that is the same for
// all blocks of a launch.
func (s Special) blockAxis() int {
	if len(s.Name) == len("%ctaid.x") && s.Name[:7] == "%ctaid." {
		return int(s.Name[7] - 'x')
	}
	return -1
}

// value is the value for a lane.
func (s Special) value(w *Warp, lane uint32) uint64 {
	l := &w.block.launch
	if base, axis, ok := strings.Cut(s.Name, "."); ok {
		i := strings.Index("xyz", axis)
		switch base {
		case "%tid":
			return uint64(w.block.thread(w.first + lane)[i])
		case "%ntid":
			return uint64(l.Block[i])
		case "%ctaid":
			return uint64(w.block.index[i])
		}
		return uint64(l.Grid[i])
	}
	one := uint32(1) << lane
	switch s.Name {
	case "%laneid":
		return uint64(lane)
	case "%warpid":
		return uint64(w.first / Lanes)
	case "%nwarpid":
		return uint64((l.Threads() + Lanes - 1) / Lanes)
	case "%lanemask_eq":
		return uint64(one)
	case "%lanemask_lt":
		return uint64(one - 1)
	case "%lanemask_le":
		return uint64(one | (one - 1))
	case "%lanemask_gt":
		return uint64(^(one | (one - 1)))
	case "%lanemask_ge":
		return uint64(^(one - 1))
	}
	return Lanes
}
