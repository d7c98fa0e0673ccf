package checkpoint

import (
	"errors"
	"fmt"
	"regexp"
	"unicode/utf8"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/optimizer"
)

const (
	maxElements       = 1 << 56 // of a tensor: sizes in bytes, slots included, do not overflow
	maxFile           = 1 << 50 // bytes
	maxVirtualWorkers = 1 << 16
)

var sumPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// check returns what in m makes no sense.
func (m *Manifest) check() error {
	if m.Format != format {
		return fmt.Errorf("format %d: want %d", m.Format, format)
	}
	named, err := parseID(m.ID)
	switch {
	case err != nil:
		return err
	case named.step != m.Step || named.generation != m.Generation:
		return fmt.Errorf("checkpoint %s: step %d and generation %d are not its name's", m.ID, m.Step, m.Generation)
	case len(m.Cut) > maxVirtualWorkers || len(m.Cut) > 0 && m.Cut[0] != m.Step:
		return fmt.Errorf("step %d, and a cut of %d groups that begins otherwise", m.Step, len(m.Cut))
	case m.VirtualWorkers < 1 || m.VirtualWorkers > maxVirtualWorkers || m.Batch < 0:
		return fmt.Errorf("%d virtual workers and batch %d: want 1 to %d, and not negative", m.VirtualWorkers, m.Batch, maxVirtualWorkers)
	case !utf8.ValidString(m.Job) || !utf8.ValidString(m.Model):
		return errors.New("job and model: want UTF-8")
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

// checker keeps what later lists of a manifest refer to.
type checker struct {
	m         *Manifest
	variables map[string]*Variable
	room      map[string]int64 // by file: bytes that no tensor seen so far takes
	tensors   map[[2]string]bool
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

// settings returns the rule that updates v.
func (v *Variable) settings(of optimizer.Settings) optimizer.Settings {
	if v.Update == optimizer.Average {
		return optimizer.Settings{Rule: optimizer.Average, Momentum: v.Momentum}
	}
	return of
}

// units returns how many units, rows or elements, a variable has, and how many
// elements a unit has.
func (v *Variable) units() (n, width int) {
	if v.Sparse {
		return v.Shape[0], elements(v.Shape[1:])
	}
	return elements(v.Shape), 1
}

// elements returns how many elements a tensor has; zero: the shape makes no
// sense.
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

// sizes are the bytes of an element.
var sizes = map[string]int64{"float32": 4, "float64": 8, "int64": 8, "uint64": 8, "uint8": 1}

func (c *checker) checkFiles() error {
	for _, f := range c.m.Files {
		if err := checkName(f.Name); err != nil {
			return err
		}
		if _, ok := c.room[f.Name]; ok {
			return fmt.Errorf("file %s: it is there twice", f.Name)
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

// take counts a tensor of some bytes in a file.
func (c *checker) take(file, tensor string, size int64) error {
	left, ok := c.room[file]
	switch {
	case !ok:
		return fmt.Errorf("file %q: it is not among the files", file)
	case tensor == "" || !utf8.ValidString(tensor) || c.tensors[[2]string{file, tensor}]:
		return fmt.Errorf("file %s: tensor %q: names must be distinct, UTF-8 and not empty", file, tensor)
	case size > left:
		return fmt.Errorf("file %s: tensor %q takes %d bytes, %d are left", file, tensor, size, left)
	}
	c.tensors[[2]string{file, tensor}] = true
	c.room[file] = left - size
	return nil
}
