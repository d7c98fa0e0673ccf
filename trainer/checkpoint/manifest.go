package checkpoint

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/plx-run/plx/trainer/optimizer"
)

const (
	format      = 1
	maxManifest = 64 << 20 // largest size of a manifest in bytes
)

// Manifest describes a checkpoint: the state of the training, the variables,
// and which file holds which part of them. It is stored as JSON.
type Manifest struct {
	Format     int    `json:"format"` // version of the manifest's format; Encode sets it
	ID         string `json:"id"`
	Job        string `json:"job"`
	Generation int    `json:"generation"` // number of restarts of the job before this checkpoint
	Step       uint64 `json:"step"`       // number of training steps that this checkpoint contains
	// Cut is, by worker group, the number of training steps that the
	// checkpoint contains. It is set only if the groups do not wait for each
	// other; Cut[0] then equals Step. nil means that all groups have made Step
	// steps.
	Cut            []uint64  `json:"cut,omitempty"`
	Time           time.Time `json:"time"`
	VirtualWorkers int       `json:"leaves"`          // number of virtual workers of the job
	Batch          int       `json:"batch"`           // rows of the global batch, over all workers
	Seed           uint64    `json:"seed"`            // seed of the job
	Model          string    `json:"model,omitempty"` // identifies the model's graph, for example by a hash; empty if unknown

	Optimizer optimizer.Settings `json:"optimizer"`
	Variables []Variable         `json:"variables"`
	Files     []File             `json:"files"`
	Parts     []Part             `json:"parts"`
	Carried   []Carried          `json:"carried,omitempty"`
	// Notes are numbers that the user's program stores in the checkpoint, by
	// name.
	Notes map[string]float64 `json:"notes,omitempty"`
	// Best is the highest score that the program has given to any state of the
	// training so far; nil means that it has given no score. IsBest is true if
	// the state in this checkpoint has that score.
	Best   *float64 `json:"best,omitempty"`
	IsBest bool     `json:"is_best,omitempty"`
}

// Variable is a tensor that training changes.
type Variable struct {
	Name   string `json:"name"`
	Dtype  string `json:"dtype"` // element type: float32 or float64
	Shape  []int  `json:"shape"`
	Sparse bool   `json:"sparse,omitempty"` // true if a Part of this variable counts rows (its first dimension), false if it counts elements
	// Update and Momentum are set only for running statistics, such as the
	// means of batch normalisation. Update is then optimizer.Average, and the
	// variable has no optimiser slots (state per value). An empty Update means
	// that the optimiser updates the variable.
	Update   optimizer.Rule `json:"update,omitempty"`
	Momentum float64        `json:"momentum,omitempty"`
}

// File is one data file of the checkpoint. The task that wrote it has the
// original; other tasks may have copies.
type File struct {
	Name string `json:"name"`
	Task string `json:"task"` // the task that wrote the file, such as ps:1
	Size int64  `json:"size"` // size in bytes
	Sum  string `json:"sum"`  // SHA-256 of the content, in lower-case hexadecimal
}

// Part says which tensor of which file holds the range [Offset, Offset+Count)
// of a variable. The range counts elements of a dense variable, and rows of a
// sparse one.
type Part struct {
	Variable string `json:"variable"`
	File     string `json:"file"`
	Tensor   string `json:"tensor"` // name of the tensor with the values; from it, package checkpoint/tensors derives the names of the tensors with row numbers and optimiser state
	Offset   int    `json:"offset"`
	Count    int    `json:"count"`
	Rows     int    `json:"rows"`    // number of rows in the file, if the variable is sparse; -1 if it is dense
	Updates  uint64 `json:"updates"` // number of steps that the optimiser has applied to this part
	Slots    int    `json:"slots"`   // number of tensors of optimiser state for each value, for example 2 for Adam
}

// Carried is recurrent state, such as an LSTM's, that a worker passes from one
// step to the next for the rows [Lo, Hi) of the global batch. The first
// dimension of Shape counts these rows.
type Carried struct {
	Name   string `json:"name"`
	File   string `json:"file"`
	Tensor string `json:"tensor"`
	Dtype  string `json:"dtype"` // element type: float32, float64, int64, uint64 or uint8
	Shape  []int  `json:"shape"`
	Lo     int    `json:"lo"`
	Hi     int    `json:"hi"`
}

// A manifest file is exactly {"sum":"<SHA-256 of the value of
// checkpoint>","checkpoint":{...}}. Every version of the format has this outer
// form, so that a reader can tell a damaged manifest from one in a newer
// format.
const (
	beforeSum  = `{"sum":"`
	beforeBody = `","checkpoint":`
	afterBody  = "}\n"
	bodyAt     = len(beforeSum) + 2*sha256.Size + len(beforeBody)
)

// Encode returns the bytes of the manifest file, in the current format. It
// fails if the manifest contradicts itself.
func (m *Manifest) Encode() ([]byte, error) {
	current := *m
	current.Format, current.Time = format, m.Time.UTC()
	if err := current.check(); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	body, err := json.Marshal(current)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	sum := sha256.Sum256(body)
	b := fmt.Appendf(nil, "%s%x%s%s%s", beforeSum, sum, beforeBody, body, afterBody)
	if len(b) > maxManifest {
		return nil, fmt.Errorf("manifest: %d bytes, want at most %d", len(b), maxManifest)
	}
	return b, nil
}

// DecodeManifest parses the bytes that Encode returned, and checks them. In
// the result all names and indices are valid, and the parts of each variable
// cover the variable exactly once.
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
	if err := json.Unmarshal(body, &version); err != nil { // Unmarshal also returns an error if bytes follow the JSON value.
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

// openEnvelope checks the format and the SHA-256 of a manifest file, in which
// both surround the checkpoint's JSON. It returns that JSON.
func openEnvelope(b []byte) ([]byte, error) {
	switch {
	case len(b) > maxManifest:
		return nil, fmt.Errorf("more than %d bytes", maxManifest)
	case len(b) < bodyAt+len(afterBody) || !bytes.HasSuffix(b, []byte(afterBody)):
		return nil, errors.New("it was cut short")
	}
	body := b[bodyAt : len(b)-len(afterBody)]
	sum := sha256.Sum256(body)
	if string(b[:bodyAt]) != fmt.Sprintf("%s%x%s", beforeSum, sum, beforeBody) {
		return nil, errors.New("its sum is wrong: it was damaged, or changed by hand")
	}
	return body, nil
}

// NewID returns a new name for a checkpoint after step training steps. It ends
// with random digits, so no two calls return the same name.
func NewID(step uint64, generation int) string {
	var salt [4]byte
	rand.Read(salt[:]) // rand.Read never returns an error
	return formatID(step, generation, hex.EncodeToString(salt[:]))
}

func formatID(step uint64, generation int, salt string) string {
	return fmt.Sprintf("%012d-g%d-%s", step, generation, salt)
}

// identity is the step and the generation (number of restarts) in a
// checkpoint's ID.
type identity struct {
	step       uint64
	generation int
}

var idPattern = regexp.MustCompile(`^([0-9]{12,20})-g([0-9]{1,10})-([0-9a-f]{8})$`)

func parseID(id string) (identity, error) {
	wrong := fmt.Errorf("checkpoint %q: a checkpoint's name is like 000000000040-g0-5f3a9c1e", id)
	parts := idPattern.FindStringSubmatch(id)
	if parts == nil {
		return identity{}, wrong
	}
	step, err := strconv.ParseUint(parts[1], 10, 64)
	if err != nil {
		return identity{}, wrong
	}
	generation, err := strconv.ParseInt(parts[2], 10, 32)
	if err != nil || formatID(step, int(generation), parts[3]) != id {
		return identity{}, wrong
	}
	return identity{step: step, generation: int(generation)}, nil
}

// newestFirst orders checkpoints by step, then by time, then by generation
// (number of restarts). Time comes before generation for two reasons.
// Generations of different jobs cannot be compared. Asynchronous workers may
// have made more steps than the chief (worker 0), whose step is in the ID. If
// all are equal, or a manifest is missing, the ID decides.
func newestFirst(a, b FolderCopy) int {
	x, _ := parseID(a.ID) // The error is ignored: List and Candidates skip names that parseID refuses.
	y, _ := parseID(b.ID)
	return -cmp.Or(cmp.Compare(x.step, y.step), a.time().Compare(b.time()),
		cmp.Compare(x.generation, y.generation), cmp.Compare(a.ID, b.ID))
}

const (
	manifestName = "manifest.json"
	longestName  = 128 // longest name in bytes; temporary names are longer, and must stay within file systems' limit of 255
)

var namePattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)

// checkName accepts only names of letters, digits, dots, dashes and
// underscores. Names come from other hosts and become parts of paths, so
// "../x" must fail.
func checkName(name string) error {
	switch {
	case len(name) > longestName || !namePattern.MatchString(name):
		return fmt.Errorf("file %q: want a plain name of at most %d letters, digits, dots, dashes", name, longestName)
	case name == manifestName:
		return fmt.Errorf("file %q: the manifest has that name", name)
	}
	return nil
}

// Fits returns nil if a program with these variables and this optimiser can
// resume from the checkpoint, and otherwise an error that names the
// difference. Settings that determine the optimiser's state must be equal. The
// learning rate, decay and epsilon may differ; the training then continues
// with the new values.
func (m *Manifest) Fits(variables []Variable, opt optimizer.Settings) error {
	saved := map[string]*Variable{}
	for i := range m.Variables {
		saved[m.Variables[i].Name] = &m.Variables[i]
	}
	for i := range variables {
		v := &variables[i]
		s := saved[v.Name]
		if s == nil {
			return fmt.Errorf("checkpoint %s: variable %q is not in the checkpoint: another program wrote it", m.ID, v.Name)
		}
		if what := s.difference(v); what != "" {
			return fmt.Errorf("checkpoint %s: variable %q %s", m.ID, v.Name, what)
		}
		delete(saved, v.Name)
	}
	for _, v := range m.Variables {
		if saved[v.Name] != nil {
			return fmt.Errorf("checkpoint %s: variable %q is in the checkpoint and not in this program", m.ID, v.Name)
		}
	}
	if what := optimizerDifference(m.Optimizer, opt); what != "" {
		return fmt.Errorf("checkpoint %s: optimiser: %s", m.ID, what)
	}
	return nil
}

// difference describes the first difference between variable s of the
// checkpoint and variable v of the program; "" means that they are equal.
func (s *Variable) difference(v *Variable) string {
	return cmp.Or(
		differ("is ", s.Dtype, v.Dtype),
		differ("has shape ", fmt.Sprint(s.Shape), fmt.Sprint(v.Shape)),
		differ("is ", density(s.Sparse), density(v.Sparse)),
		differ("is updated ", updating(s), updating(v)),
	)
}

func differ[T comparable](what string, saved, now T) string {
	if saved == now {
		return ""
	}
	return fmt.Sprintf("%s%v in the checkpoint and %v in this program", what, saved, now)
}

func density(sparse bool) string {
	if sparse {
		return "sparse"
	}
	return "dense"
}

func updating(v *Variable) string {
	if v.Update == "" {
		return "by the optimiser"
	}
	return fmt.Sprintf("by %s with momentum %v", v.Update, v.Momentum)
}

// optimizerDifference describes the first difference between two optimisers'
// settings that changes the meaning of their state (slots). It returns "" if
// there is no such difference.
func optimizerDifference(s, opt optimizer.Settings) string {
	return cmp.Or(
		differ("", s.Rule, opt.Rule),
		differ("nesterov ", s.Nesterov, opt.Nesterov),
		differ("momentum ", s.Momentum, opt.Momentum),
		differ("accumulator ", s.Accumulator, opt.Accumulator),
		differ("beta1 ", s.Beta1, opt.Beta1),
		differ("beta2 ", s.Beta2, opt.Beta2),
	)
}
