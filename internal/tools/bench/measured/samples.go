package measured

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// Samples are results of runs in Go's benchmark format, in the order of
// measurement. The name of each result is SUBJECT/KEY=VALUE/KEY=VALUE.
type Samples []*benchfmt.Result

// Load reads a file that Save has written.
func Load(path string) (all Samples, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := benchfmt.NewReader(bytes.NewReader(text), path)
	for r.Scan() {
		switch got := r.Result().(type) {
		case *benchfmt.Result:
			all = append(all, got.Clone())
		case error:
			return nil, got
		}
	}
	return all, r.Err()
}

// Save writes the samples to the file at path. It replaces an existing file
// atomically.
func (s Samples) Save(path string) error {
	var text bytes.Buffer
	w := benchfmt.NewWriter(&text)
	for _, r := range s {
		_ = w.Write(r) // no error, because w writes to memory
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", text.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Part returns the value of a key in a result's name.
func Part(r *benchfmt.Result, key string) string {
	_, rest, _ := strings.Cut(r.Name.String()+"/", "/"+key+"=")
	value, _, _ := strings.Cut(rest, "/")
	return value
}

// Parts returns the distinct values of a key, in the order of the samples.
func (s Samples) Parts(key string) (all []string) {
	for _, r := range s {
		if part := Part(r, key); part != "" && !slices.Contains(all, part) {
			all = append(all, part)
		}
	}
	return all
}

// Pick returns the samples whose names contain all of the given parts
// KEY=VALUE.
func (s Samples) Pick(parts ...string) (all Samples) {
	for _, r := range s {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(r.Name.String()+"/", "/"+part+"/") }) {
			all = append(all, r)
		}
	}
	return all
}

// Of returns the values that the samples have for a unit, in ascending order.
func (s Samples) Of(unit string) (all Values) {
	for _, r := range s {
		if v, found := r.Value(unit); found {
			all = append(all, v)
		}
	}
	slices.Sort(all)
	return all
}

// Median returns the median of the values that the samples have for a unit.
func (s Samples) Median(unit string) float64 { return s.Of(unit).Median() }

// Values are numbers in ascending order.
type Values []float64

// Median returns the median, or 0 if there are no values.
func (v Values) Median() float64 {
	if len(v) == 0 {
		return 0
	}
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// Range formats the smallest and the largest value as "A to B". v must not be
// empty.
func (v Values) Range(format string) string {
	return fmt.Sprintf(format+" to "+format, v[0], v[len(v)-1])
}
