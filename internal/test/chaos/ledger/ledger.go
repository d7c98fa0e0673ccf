// Package ledger is a log in which workers of the fault grid (the tests of
// package chaos) record their steps. From the logs and the model's counters, a
// checker can decide whether every gradient was applied exactly as often as it
// should have been.
//
//	book, err := ledger.Create(folder, generation, rank)
//	...
//	err = book.Note(ledger.Entry{Push: first, Kind: ledger.Joined, Workers: n})
//	err = book.Note(ledger.Entry{Push: push, Kind: ledger.Begun, Seen: counts})
//	err = book.Note(ledger.Entry{Push: push, Kind: ledger.Made})
//
// Note writes the entry to the file before it returns, so that entries survive
// a crash of the process. They may not survive a crash of the machine, because
// Note does not call fsync.
package ledger

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Upper limits of a job whose gradients are counted. Rows is the number of
// different pushes: the product of the other limits.
const (
	Generations = 4
	Workers     = 3
	Steps       = 80
	Rows        = Generations * Workers * Steps
)

// Push identifies the gradient of one worker in one step.
type Push struct {
	Generation int `json:"generation"` // number of the generation, from 0, less than the constant Generations
	Worker     int `json:"worker"`     // rank of the worker, less than the constant Workers
	Step       int `json:"step"`       // number of the step, from 0, less than the constant Steps
}

// Row is the row of a counting variable that counts how often the push p was
// applied. Even and odd steps are in different halves of the variable. If the
// variable is divided among shard holders (tasks that hold its values),
// consecutive steps therefore go to different holders.
func (p Push) Row() int {
	return ((p.Step%2*Steps/2+p.Step/2)*Generations+p.Generation)*Workers + p.Worker
}

// check returns an error if a number of the push exceeds its limit.
func (p Push) check() error {
	if p.Generation < 0 || p.Generation >= Generations || p.Worker < 0 || p.Worker >= Workers || p.Step < 0 || p.Step >= Steps {
		return fmt.Errorf("%+v: want a generation below %d, a worker below %d, a step below %d", p, Generations, Workers, Steps)
	}
	return nil
}

// Kind is the event that an entry records.
type Kind string

// The kinds of entries. Joined is a worker's first entry: its Step is the
// first step that the worker will make. A worker records Begun before each
// step. After the step it records Made if the step's gradient was applied, or
// Late if the gradient came too late. It records neither if it never learns
// the outcome.
const (
	Joined Kind = "joined"
	Begun  Kind = "begun"
	Made   Kind = "made"
	Late   Kind = "late"
)

// Entry is one line of a worker's ledger.
type Entry struct {
	Push
	Kind Kind `json:"kind"`
	// Workers is the number of workers in the generation; set only if Kind is Joined.
	Workers int `json:"workers,omitempty"`
	// Seen is indexed by worker. It counts the pushes of this generation that
	// are contained in the values from which the gradient was computed. It is
	// set only if Kind is Begun.
	Seen []int `json:"seen,omitempty"`
}

// check returns an error if the entry is invalid. In a Joined entry, Step may
// be past the last step: the worker then has no steps left.
func (e Entry) check() error {
	if e.Kind != Joined {
		return e.Push.check()
	}
	if e.Step < 0 || e.Workers <= e.Worker || e.Workers > Workers {
		return fmt.Errorf("%+v: want a step, and at most %d workers, of which it is one", e, Workers)
	}
	return Push{Generation: e.Generation, Worker: e.Worker}.check()
}

// Book is the ledger file of one worker in one generation.
type Book struct{ file *os.File }

// Create creates a ledger file in a folder, and the folder if necessary.
func Create(folder string, generation, worker int) (*Book, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(folder, fmt.Sprintf("%d-%d.jsonl", generation, worker)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	return &Book{f}, err
}

// Note appends an entry to the file.
func (b *Book) Note(e Entry) error { return json.NewEncoder(b.file).Encode(e) }

// Close closes the file.
func (b *Book) Close() error { return b.file.Close() }

// Read returns the entries of all ledger files in a folder. The entries of
// each file stay in order.
func Read(folder string) (all []Entry, err error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.jsonl"))
	for _, path := range paths {
		entries, failed := read(path)
		all, err = append(all, entries...), errors.Join(err, failed)
	}
	return all, err
}

func read(path string) (all []Entry, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // opened for reading: an error of Close does not matter
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var e Entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return all, fmt.Errorf("%s: entry %d: %w", path, len(all)+1, err)
		}
		if err := e.check(); err != nil {
			return all, fmt.Errorf("%s: entry %d: %w", path, len(all)+1, err)
		}
		all = append(all, e)
	}
	return all, lines.Err()
}

// Applied maps each counting variable to its counts. A count is the number of
// times that the variable applied a push, indexed by Push.Row.
type Applied map[string][]float64

const appliedName = "applied.json"

// Write writes the counts to a file in the folder.
func (a Applied) Write(folder string) error {
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, appliedName), text, 0o600)
}

// ReadApplied reads the file that Write has written; it returns nil if there
// is none.
func ReadApplied(folder string) (a Applied, err error) {
	text, err := os.ReadFile(filepath.Join(folder, appliedName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return nil, fmt.Errorf("%s: %w", appliedName, err)
	}
	for name, counts := range a {
		if len(counts) != Rows {
			return nil, fmt.Errorf("%s: %q has %d rows, want %d", appliedName, name, len(counts), Rows)
		}
	}
	return a, nil
}
