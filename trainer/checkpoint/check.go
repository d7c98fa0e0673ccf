package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"unicode/utf8"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/optimizer"
)

const (
	maxElements       = 1 << 56 // largest number of elements of a tensor; small enough that its size in bytes, with all slots (optimiser state), fits into an int64
	maxFile           = 1 << 50 // largest size of a file in bytes
	maxVirtualWorkers = 1 << 16
)

var sumPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// check returns an error if the manifest contradicts itself or has invalid
// values.
func (m *Manifest) check() error {
	if m.Format != format {
		return fmt.Errorf("format %d: want %d", m.Format, format)
	}
	named, err := parseID(m.ID)
	switch {
	case err != nil:
		return err
	case named.step != m.Step || named.generation != m.Generation:
		return fmt.Errorf("checkpoint %s: step %d and generation %d do not match its name", m.ID, m.Step, m.Generation)
	case len(m.Cut) > maxVirtualWorkers || len(m.Cut) > 0 && m.Cut[0] != m.Step:
		return fmt.Errorf("cut of %d groups: want at most %d, beginning with step %d", len(m.Cut), maxVirtualWorkers, m.Step)
	case m.VirtualWorkers < 1 || m.VirtualWorkers > maxVirtualWorkers || m.Batch < 0:
		return fmt.Errorf("%d virtual workers and batch %d: want 1 to %d, and not negative", m.VirtualWorkers, m.Batch, maxVirtualWorkers)
	case !utf8.ValidString(m.Job) || !utf8.ValidString(m.Model):
		return errors.New("job and model: want UTF-8")
	case m.IsBest && m.Best == nil:
		return errors.New("it is the best one and has no score")
	}
	if year := m.Time.UTC().Year(); year < 1 || year > 9999 {
		return fmt.Errorf("time in the year %d: want 1 to 9999", year)
	}
	if err := m.Optimizer.Check(); err != nil {
		return err
	}
	c := checker{m: m, variables: map[string]*Variable{}, room: map[string]int64{}, tensors: map[[2]string]bool{}}
	for _, check := range []func() error{c.checkVariables, c.checkFiles, c.checkParts, c.checkCarried} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// checker collects the variables, files and tensors of a manifest while
// checking it, because later lists in the manifest refer to them by name.
type checker struct {
	m         *Manifest
	variables map[string]*Variable // variables of the manifest by name
	room      map[string]int64     // by file name: bytes of the file that no tensor checked so far occupies
	tensors   map[[2]string]bool   // by file and tensor name: true if an entry of the manifest, for a part of a variable or for recurrent state, has named this tensor
}

func (c *checker) checkVariables() error {
	for i := range c.m.Variables {
		v := &c.m.Variables[i]
		if v.Name == "" || !utf8.ValidString(v.Name) || c.variables[v.Name] != nil {
			return fmt.Errorf("variable %q: names must be distinct, UTF-8 and not empty", v.Name)
		}
		if err := v.check(); err != nil {
			return fmt.Errorf("variable %q: %w", v.Name, err)
		}
		c.variables[v.Name] = v
	}
	return nil
}

func (v *Variable) check() error {
	if v.Dtype != "float32" && v.Dtype != "float64" {
		return fmt.Errorf("type %q: want float32 or float64", v.Dtype)
	}
	if elements(v.Shape) == 0 || v.Sparse && len(v.Shape) == 0 {
		return fmt.Errorf("shape %v: want positive lengths, at most %d elements, and rows of a sparse one", v.Shape, maxElements)
	}
	if v.Update != "" && v.Update != optimizer.Average || v.Update == "" && v.Momentum != 0 {
		return fmt.Errorf("update %q with momentum %v: want none or %q", v.Update, v.Momentum, optimizer.Average)
	}
	return v.settings(optimizer.Settings{Rule: optimizer.SGD}).Check()
}

// settings returns the update rule of v. It is a running average for
// statistics such as means, and the job's optimiser for all other variables.
func (v *Variable) settings(of optimizer.Settings) optimizer.Settings {
	if v.Update == optimizer.Average {
		return optimizer.Settings{Rule: optimizer.Average, Momentum: v.Momentum}
	}
	return of
}

// units returns the number of units of v and the elements in each. A unit is a
// row of a sparse variable, or an element of a dense one.
func (v *Variable) units() (n, width int) {
	if v.Sparse {
		return v.Shape[0], elements(v.Shape[1:])
	}
	return elements(v.Shape), 1
}

// elements returns the number of elements of a tensor of this shape, or 0 if a
// dimension is not positive or the product exceeds maxElements.
func elements(shape []int) int {
	n := 1
	for _, d := range shape {
		if d <= 0 || n > maxElements/d {
			return 0
		}
		n *= d
	}
	return n
}

// sizes has the size in bytes of one element, by element type.
var sizes = map[string]int64{"float32": 4, "float64": 8, "int64": 8, "uint64": 8, "uint8": 1}

func (c *checker) checkFiles() error {
	for _, f := range c.m.Files {
		if err := checkName(f.Name); err != nil {
			return err
		}
		if _, ok := c.room[f.Name]; ok {
			return fmt.Errorf("file %s: listed twice", f.Name)
		}
		if _, err := cluster.ParseTask(f.Task); err != nil {
			return fmt.Errorf("file %s: %w", f.Name, err)
		}
		if f.Size < 0 || f.Size > maxFile {
			return fmt.Errorf("file %s: %d bytes: want 0 to %d", f.Name, f.Size, maxFile)
		}
		if !sumPattern.MatchString(f.Sum) {
			return fmt.Errorf("file %s: sum %q: want 64 hexadecimal digits", f.Name, f.Sum)
		}
		c.room[f.Name] = f.Size
	}
	return nil
}

// take records that a tensor of size bytes lies in file. It fails if the file
// is not listed, the tensor is already taken, or the file is too small.
func (c *checker) take(file, tensor string, size int64) error {
	left, ok := c.room[file]
	switch {
	case !ok:
		return fmt.Errorf("file %q: the manifest does not list it", file)
	case tensor == "" || !utf8.ValidString(tensor) || c.tensors[[2]string{file, tensor}]:
		return fmt.Errorf("file %s: tensor %q: names must be distinct, UTF-8 and not empty", file, tensor)
	case size > left:
		return fmt.Errorf("file %s: tensor %q takes %d bytes, %d are left", file, tensor, size, left)
	}
	c.tensors[[2]string{file, tensor}] = true
	c.room[file] = left - size
	return nil
}

// checkParts checks the parts, and that they cover each variable exactly once.
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
		return errors.New("the manifest does not list it")
	}
	n, width := v.units()
	if p.Offset < 0 || p.Count < 1 || p.Offset > n || p.Count > n-p.Offset {
		return fmt.Errorf("part of %d from %d: the variable has %d", p.Count, p.Offset, n)
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

// checkCarried checks the recurrent state of the workers: for each name, the
// rows must cover the global batch exactly once, with one type and shape.
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

// span is the range [from, from+count).
type span struct{ from, count int }

// cover returns an error unless the spans cover each number of [0, n) exactly
// once.
func cover(spans []span, n int) error {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	end := 0
	for _, s := range spans {
		switch {
		case s.from < end:
			return fmt.Errorf("the parts that end at %d and begin at %d overlap", end, s.from)
		case s.from > end:
			return fmt.Errorf("no part covers [%d, %d)", end, s.from)
		}
		end += s.count
	}
	if end != n {
		return fmt.Errorf("no part covers [%d, %d)", end, n)
	}
	return nil
}
