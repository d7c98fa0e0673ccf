package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"
)

// checkParts refuses parts that do not cover each variable exactly once.
func (c *checker) checkParts() error {
	spans := map[string][]span{}
	for _, p := range c.m.Parts {
		if err := c.checkPart(p); err != nil {
			return fmt.Errorf("variable %q: %w", p.Variable, err)
		}
		spans[p.Variable] = append(spans[p.Variable], span{p.Offset, p.Count})
	}
	for _, v := range c.m.Variables {
		n, _ := v.units()
		if err := cover(spans[v.Name], n); err != nil {
			return fmt.Errorf("variable %q: %w", v.Name, err)
		}
	}
	return nil
}

func (c *checker) checkPart(p Part) error {
	v := c.variables[p.Variable]
	if v == nil {
		return errors.New("it is not among the variables")
	}
	n, width := v.units()
	if p.Offset < 0 || p.Count < 1 || p.Offset > n || p.Count > n-p.Offset {
		return fmt.Errorf("part of %d from %d: it has %d", p.Count, p.Offset, n)
	}
	stored, index := p.Count, 0
	switch {
	case v.Sparse && (p.Rows < 0 || p.Rows > p.Count):
		return fmt.Errorf("part of %d rows from %d: %d of them are stored", p.Count, p.Offset, p.Rows)
	case v.Sparse:
		stored, index = p.Rows, 8
	case p.Rows != -1:
		return fmt.Errorf("part of %d from %d: %d rows are stored of a dense variable, want -1", p.Count, p.Offset, p.Rows)
	}
	if want := v.settings(c.m.Optimizer).Slots(); p.Slots != want {
		return fmt.Errorf("part of %d from %d: %d slots, its rule keeps %d", p.Count, p.Offset, p.Slots, want)
	}
	size := int64(stored) * (int64(width)*sizes[v.Dtype]*int64(1+p.Slots) + int64(index))
	return c.take(p.File, p.Tensor, size)
}

// checkCarried refuses states of a name that do not cover the global batch, or
// differ in type or shape.
func (c *checker) checkCarried() error {
	spans, first := map[string][]span{}, map[string]*Carried{}
	for i := range c.m.Carried {
		s := &c.m.Carried[i]
		if err := c.checkState(s); err != nil {
			return fmt.Errorf("carried %q: %w", s.Name, err)
		}
		if f := first[s.Name]; f == nil {
			first[s.Name] = s
		} else if f.Dtype != s.Dtype || !slices.Equal(f.Shape[1:], s.Shape[1:]) {
			return fmt.Errorf("carried %q: rows from %d are %s %v, those from %d %s %v", s.Name, s.Lo, s.Dtype, s.Shape, f.Lo, f.Dtype, f.Shape)
		}
		spans[s.Name] = append(spans[s.Name], span{s.Lo, s.Hi - s.Lo})
	}
	for _, name := range slices.Sorted(maps.Keys(spans)) {
		if err := cover(spans[name], c.m.Batch); err != nil {
			return fmt.Errorf("carried %q: %w", name, err)
		}
	}
	return nil
}

func (c *checker) checkState(s *Carried) error {
	size := sizes[s.Dtype]
	switch {
	case s.Name == "" || !utf8.ValidString(s.Name):
		return errors.New("want a name, in UTF-8")
	case size == 0:
		return fmt.Errorf("type %q: want float32, float64, int64, uint64 or uint8", s.Dtype)
	case s.Lo < 0 || s.Hi <= s.Lo || s.Hi > c.m.Batch:
		return fmt.Errorf("rows [%d, %d): the batch has %d", s.Lo, s.Hi, c.m.Batch)
	case elements(s.Shape) == 0 || len(s.Shape) == 0 || s.Shape[0] != s.Hi-s.Lo:
		return fmt.Errorf("shape %v: want positive lengths, the first of them %d as its rows are [%d, %d)", s.Shape, s.Hi-s.Lo, s.Lo, s.Hi)
	}
	return c.take(s.File, s.Tensor, int64(elements(s.Shape))*size)
}

// span is [from, from+count).
type span struct{ from, count int }

// cover refuses spans that do not cover [0, n), each number once.
func cover(spans []span, n int) error {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	end := 0
	for _, s := range spans {
		switch {
		case s.from < end:
			return fmt.Errorf("the parts that end at %d and begin at %d overlap", end, s.from)
		case s.from > end:
			return fmt.Errorf("no part has what is in [%d, %d)", end, s.from)
		}
		end += s.count
	}
	if end != n {
		return fmt.Errorf("no part has what is in [%d, %d)", end, n)
	}
	return nil
}
