package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/plx-run/plx/trainer/executor/device"
)

// record is what a run has found: the file gpu-check.json.
type record struct {
	Format  int         `json:"format"` // 1
	Plx     string      `json:"plx"`    // version of the source
	Kernels string      `json:"kernels"`
	Begin   time.Time   `json:"begin"`
	Quick   bool        `json:"quick"` // small sizes: the times say nothing
	GPU     device.Info `json:"gpu"`
	Torch   string      `json:"torch"`   // version; empty if PyTorch was not measured
	Parts   []outcome   `json:"parts"`   // in their order
	Figures []figure    `json:"figures"` // in the order of measurement
	Answers string      `json:"answers"` // what nvidia-smi said to gpuprobe's script
}

// outcome is how a part ended.
type outcome struct {
	Part    string  `json:"part"`
	Status  status  `json:"status"`
	Seconds float64 `json:"seconds"`
	Text    string  `json:"text"`             // one line
	Output  string  `json:"output,omitempty"` // the end of a failed part's output
}

type status string

const (
	passed status = "passed"
	failed status = "failed"
	absent status = "absent" // this machine or this folder lacks what the part needs
)

// largestRecord bounds what is read of a record.
const largestRecord = 16 << 20

// read reads a record.
func readRecord(path string) (*record, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // it was only read
	r := &record{}
	if err := json.NewDecoder(io.LimitReader(f, largestRecord)).Decode(r); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if r.Format != 1 {
		return nil, fmt.Errorf("read %s: format %d is unknown to this version: use the gpucheck that wrote it", path, r.Format)
	}
	return r, nil
}

// save writes gpu-check.json and gpu-check.md into a folder.
func (r *record) save(folder string) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "gpu-check.json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "gpu-check.md"), []byte(r.markdown()), 0o644)
}

// ok reports whether no part failed.
func (r *record) ok() bool {
	for _, o := range r.Parts {
		if o.Status == failed {
			return false
		}
	}
	return true
}

// add adds the figures in lines of JSON.
func (r *record) add(lines string) (n int, err error) {
	for d := json.NewDecoder(bytes.NewBufferString(lines)); ; n++ {
		var got figure
		if err := d.Decode(&got); errors.Is(err, io.EOF) {
			return n, nil
		} else if err != nil {
			return n, fmt.Errorf("read the figures: %w", err)
		}
		r.Figures = append(r.Figures, got)
	}
}

// addTorch adds PyTorch's times, and its version, to the figures.
func (r *record) addTorch(lines string) (n int, err error) {
	for d := json.NewDecoder(strings.NewReader(lines)); ; {
		var got struct {
			Version string  `json:"version"`
			What    string  `json:"what"`
			Ms      float64 `json:"ms"`
		}
		if err := d.Decode(&got); errors.Is(err, io.EOF) {
			return n, nil
		} else if err != nil {
			return n, fmt.Errorf("read PyTorch's times: %w", err)
		}
		if got.Version != "" {
			r.Torch = got.Version
		}
		for i, f := range r.Figures {
			if f.What == got.What {
				r.Figures[i] = f.beside(got.Ms)
				n++
			}
		}
	}
}

// answered keeps what nvidia-smi said.
func (r *record) answered(text string) { r.Answers = text }
