package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/plx-run/plx/internal/measured"
)

// Results are all samples.
type Results struct {
	Machine    measured.Machine `json:"machine"`
	References []Reference      `json:"references"`
	Samples    []Sample         `json:"samples"`
}

// Reference is a run without a fault.
type Reference struct {
	Arch    string  `json:"arch"`
	Digest  string  `json:"digest"`
	Seconds float64 `json:"seconds"`
}

// keep takes a sample in place of an older one of its cell.
func (r *Results) keep(s Sample) {
	if i := slices.IndexFunc(r.Samples, func(old Sample) bool { return old.Cell == s.Cell }); i >= 0 {
		r.Samples[i] = s
		return
	}
	r.Samples = append(r.Samples, s)
}

// sample is that of a cell, nil where it was not tried.
func (r *Results) sample(c Cell) *Sample {
	i := slices.IndexFunc(r.Samples, func(s Sample) bool { return s.Cell == c.Name() })
	if i < 0 {
		return nil
	}
	return &r.Samples[i]
}

// write puts the table into the document.
func (r *Results) write(s *settings) error {
	return measured.Insert(filepath.Join(s.out, "reliability.md"), "Reliability", "grid", r.markdown())
}

// failures is an error that names the cells that have not kept their promise.
func (r *Results) failures() error {
	var all []error
	for _, s := range r.Samples {
		if s.Failed != "" {
			all = append(all, fmt.Errorf("%s: %s", s.Cell, s.Failed))
		}
	}
	return errors.Join(all...)
}

// summary is one line about a sample.
func (s Sample) summary() string {
	if s.Failed != "" {
		return fmt.Sprintf("%s: FAILED: %s", s.Cell, s.Failed)
	}
	text := fmt.Sprintf("%s: %s", s.Cell, s.Outcome)
	if s.Noticed >= 0 {
		text += fmt.Sprintf(", noticed after %.1f s", s.Noticed)
	}
	if s.Outcome == ends {
		return text + fmt.Sprintf(", ended after %.1f s, the next launch went on after %d steps of %d; %s", s.Ended, s.Resumed, s.Reached+1, s.Proof)
	}
	return text + fmt.Sprintf(", back after %.1f s, %d steps redone; %s", s.Back, s.Redone, s.Proof)
}
