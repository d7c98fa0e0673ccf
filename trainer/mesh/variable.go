package mesh

import (
	"context"
	"encoding/binary"
	"fmt"
)

// AllGatherBytes returns what each worker gives as from, by rank: pieces of
// any length up to limit, which is the same on all workers. The memory is the
// caller's.
func AllGatherBytes(ctx context.Context, m *Mesh, from []byte, limit int) ([][]byte, error) {
	first := make([]byte, 8, maxEager) // the length, and the piece if it is little
	binary.LittleEndian.PutUint64(first, uint64(len(from)))
	if len(from) <= eagerSize {
		first = append(first, from...)
	}
	s := signature{op: allGatherBytes, of: byteType, count: uint64(max(limit, 0))}
	pieces := make([][]byte, m.world())
	r, err := m.run(ctx, s, func(r *round) error {
		if len(from) > limit {
			return fmt.Errorf("a piece of %d bytes", len(from))
		}
		pieces[m.config.Rank] = append([]byte(nil), from...)
		for _, f := range r.flows {
			if f != nil {
				f.eager, f.told = first, -1
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	much := len(from) > eagerSize
	for rank, f := range r.flows {
		if f == nil {
			continue
		}
		if pieces[rank], err = unpack(r.came(rank), limit); err != nil {
			return nil, m.fail(f.link.blame(fmt.Errorf("%s: %w", s, err)))
		}
		much = much || len(pieces[rank]) > eagerSize
	}
	if !much {
		return pieces, nil
	}
	_, err = m.run(ctx, s, func(r *round) error {
		for rank, f := range r.flows {
			if f != nil && len(from) > eagerSize {
				f.give(pieces[m.config.Rank], false)
			}
			if f != nil && len(pieces[rank]) > eagerSize {
				f.take(pieces[rank], false)
			}
		}
		return nil
	})
	return pieces, err
}

// unpack makes a piece of what came with an announcement: filled if it is
// little, else to be filled.
func unpack(came []byte, limit int) ([]byte, error) {
	if len(came) < 8 {
		return nil, fmt.Errorf("announced with %d bytes", len(came))
	}
	size := binary.LittleEndian.Uint64(came)
	came = came[8:]
	if size > uint64(limit) || size <= eagerSize && int(size) != len(came) || size > eagerSize && len(came) > 0 {
		return nil, fmt.Errorf("announced a piece of %d bytes with %d", size, len(came))
	}
	piece := make([]byte, size)
	copy(piece, came)
	return piece, nil
}
