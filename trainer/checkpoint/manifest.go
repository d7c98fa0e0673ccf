package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/plx-run/plx/trainer/optimizer"
)

const (
	format      = 1
	maxManifest = 64 << 20 // bytes
)

// Manifest says what a checkpoint is made of.
type Manifest struct {
	Format     int    `json:"format"` // set by Encode
	ID         string `json:"id"`
	Job        string `json:"job"`
	Generation int    `json:"generation"`
	Step       uint64 `json:"step"` // number of steps before the checkpoint
	// Cut is the number of steps of each group of workers before the
	// checkpoint, if groups do not wait for each other. The first is Step. nil
	// means that all have made Step steps.
	Cut            []uint64  `json:"cut,omitempty"`
	Time           time.Time `json:"time"`
	VirtualWorkers int       `json:"leaves"`
	Batch          int       `json:"batch"` // rows of the global batch
	Seed           uint64    `json:"seed"`
	Model          string    `json:"model,omitempty"`

	Optimizer optimizer.Settings `json:"optimizer"`
	Variables []Variable         `json:"variables"`
	Files     []File             `json:"files"`
	Parts     []Part             `json:"parts"`
	Carried   []Carried          `json:"carried,omitempty"`
}

// Variable is a trained tensor.
type Variable struct {
	Name   string `json:"name"`
	Dtype  string `json:"dtype"` // float32 or float64
	Shape  []int  `json:"shape"`
	Sparse bool   `json:"sparse,omitempty"` // its parts count rows, the first dimension, and not elements
	// Update and Momentum are set for running statistics: optimizer.Average.
	// They have no slots, whatever the optimiser. Empty and zero: the optimiser
	// updates the variable.
	Update   optimizer.Rule `json:"update,omitempty"`
	Momentum float64        `json:"momentum,omitempty"`
}

// File is one file of the checkpoint and the task that wrote it. Other tasks
// may hold copies.
type File struct {
	Name string `json:"name"`
	Task string `json:"task"` // such as ps:1
	Size int64  `json:"size"`
	Sum  string `json:"sum"` // SHA-256, lower-case hexadecimal
}

// Part is the part [Offset, Offset+Count) of a variable and the tensor that
// holds it: elements of a dense variable, rows of a sparse one.
type Part struct {
	Variable string `json:"variable"`
	File     string `json:"file"`
	Tensor   string `json:"tensor"` // of its values; package checkpoint/tensors names the others
	Offset   int    `json:"offset"`
	Count    int    `json:"count"`
	Rows     int    `json:"rows"`    // stored rows of a sparse variable; -1: it is dense
	Updates  uint64 `json:"updates"` // that the shard holder's optimiser has counted
	Slots    int    `json:"slots"`   // tensors of the optimiser's state
}

// Carried is what a worker keeps from one step to the next for the rows
// [Lo, Hi) of the global batch, such as an LSTM's state. The first dimension
// of the shape is these rows.
type Carried struct {
	Name   string `json:"name"`
	File   string `json:"file"`
	Tensor string `json:"tensor"`
	Dtype  string `json:"dtype"` // float32, float64, int64, uint64 or uint8
	Shape  []int  `json:"shape"`
	Lo     int    `json:"lo"`
	Hi     int    `json:"hi"`
}

// The file is {"sum":"<SHA-256 of the checkpoint's bytes>","checkpoint":{...}}
// to the byte, in every format, so that a damaged manifest differs from a newer
// one.
const (
	beforeSum  = `{"sum":"`
	beforeBody = `","checkpoint":`
	afterBody  = "}\n"
	bodyAt     = len(beforeSum) + 2*sha256.Size + len(beforeBody)
)

// Encode returns the manifest as it is stored, in the current format. It refuses
// one that contradicts itself.
func (m *Manifest) Encode() ([]byte, error) {
	body, err := m.body()
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	sum := sha256.Sum256(body)
	b := append([]byte(beforeSum), hex.EncodeToString(sum[:])...)
	b = append(b, beforeBody...)
	b = append(b, body...)
	b = append(b, afterBody...)
	if len(b) > maxManifest {
		return nil, fmt.Errorf("manifest: %d bytes, want at most %d", len(b), maxManifest)
	}
	return b, nil
}

func (m *Manifest) body() ([]byte, error) {
	current := *m
	current.Format, current.Time = format, m.Time.UTC()
	if err := current.check(); err != nil {
		return nil, err
	}
	return json.Marshal(current)
}

// DecodeManifest reads what Encode returned. Nothing in the result contradicts
// itself: names and indices are valid, and the parts of each variable cover it
// exactly once.
func DecodeManifest(b []byte) (*Manifest, error) {
	m, err := decode(b)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return m, nil
}

func decode(b []byte) (*Manifest, error) {
	body, err := openEnvelope(b)
	if err != nil {
		return nil, err
	}
	var version struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(body, &version); err != nil { // it also refuses bytes after the value
		return nil, err
	}
	if version.Format > format {
		return nil, fmt.Errorf("its format is %d, this plx knows %d: use the plx that wrote it, or a newer one", version.Format, format)
	}
	var m Manifest
	strict := json.NewDecoder(bytes.NewReader(body))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&m); err != nil {
		return nil, err
	}
	return &m, m.check()
}

// openEnvelope returns the checkpoint's bytes if their sum is right.
func openEnvelope(b []byte) ([]byte, error) {
	switch {
	case len(b) > maxManifest:
		return nil, fmt.Errorf("more than %d bytes", maxManifest)
	case len(b) < bodyAt+len(afterBody) || !bytes.HasSuffix(b, []byte(afterBody)):
		return nil, errors.New("it was cut short")
	}
	body := b[bodyAt : len(b)-len(afterBody)]
	sum := sha256.Sum256(body)
	want := beforeSum + hex.EncodeToString(sum[:]) + beforeBody
	if string(b[:bodyAt]) != want {
		return nil, errors.New("its sum is wrong: it was damaged, or changed by hand")
	}
	return body, nil
}
