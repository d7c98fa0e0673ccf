// Package ledger is what workers of the fault grid write down of their steps,
// so that somebody who reads it later can tell of every single gradient whether
// it was applied as often as it should have been.
//
//	book, err := ledger.Create(folder, generation, rank)
//	...
//	err = book.Note(ledger.Entry{Push: first, Kind: ledger.Joined, Workers: n})
//	err = book.Note(ledger.Entry{Push: push, Kind: ledger.Begun, Seen: counts})
//	err = book.Note(ledger.Entry{Push: push, Kind: ledger.Made})
//
// What was written is in the file before Note returns: it outlives the process.
// It does not outlive the machine; nothing is synced.
package ledger

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// What is counted: so many generations of a job, of so many workers, that take
// so many steps.
const (
	Generations = 4
	Workers     = 3
	Steps       = 80
	Rows        = Generations * Workers * Steps
)

// Push is one worker's gradient of one step.
type Push struct {
	Generation int `json:"generation"` // from 0, below Generations
	Worker     int `json:"worker"`     // index, below Workers
	Step       int `json:"step"`       // from 0, below Steps
}

// Row is where a variable of Rows rows counts how often the push was applied. A
// step's rows and those of the next are in different halves, so that they have
// different shard holders where a variable is cut.
func (p Push) Row() int {
	return ((p.Step%2*Steps/2+p.Step/2)*Generations+p.Generation)*Workers + p.Worker
}

// check says why a push is none that can be counted.
func (p Push) check() error {
	if p.Generation < 0 || p.Generation >= Generations || p.Worker < 0 || p.Worker >= Workers || p.Step < 0 || p.Step >= Steps {
		return fmt.Errorf("%+v: want a generation below %d, a worker below %d, a step below %d", p, Generations, Workers, Steps)
	}
	return nil
}

// Kind says what became of a push.
type Kind string

// The kinds. A push is Begun, and then Made, or Late where it was told that it
// does not count; with neither nobody was told. Joined comes once, before all
// others: the worker is there, and Step is the first that it is to make.
const (
	Joined Kind = "joined"
	Begun  Kind = "begun"
	Made   Kind = "made"
	Late   Kind = "late"
)

// Entry is a line of a worker's book.
type Entry struct {
	Push
	Kind Kind `json:"kind"`
	// Workers is the number of workers in the generation; set only if Kind is Joined.
	Workers int `json:"workers,omitempty"`
	// Seen counts, by worker, the pushes of this generation in the values from which
	// the gradient was computed; set only if Kind is Begun.
	Seen []int `json:"seen,omitempty"`
}

// check says why an entry means nothing. A worker may join that has no step left
// to make.
func (e Entry) check() error {
	if e.Kind != Joined {
		return e.Push.check()
	}
	if e.Step < 0 || e.Workers <= e.Worker || e.Workers > Workers {
		return fmt.Errorf("%+v: want a step, and at most %d workers, of which it is one", e, Workers)
	}
	return Push{Generation: e.Generation, Worker: e.Worker}.check()
}

// Book is one worker's, of one generation.
type Book struct{ file *os.File }

// Create begins a book in a folder, which is made where there is none.
func Create(folder string, generation, worker int) (*Book, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(folder, fmt.Sprintf("%d-%d.jsonl", generation, worker)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	return &Book{f}, err
}

// Note writes an entry down.
func (b *Book) Note(e Entry) error { return json.NewEncoder(b.file).Encode(e) }

// Close ends the book.
func (b *Book) Close() error { return b.file.Close() }

// Read returns the entries of all books of a folder, each book's in order.
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
	defer f.Close() // only read
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

// Applied is how often each push was, by the variable that counted it and the
// push's row.
type Applied map[string][]float64

const appliedName = "applied.json"

// Write puts it into the folder.
func (a Applied) Write(folder string) error {
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, appliedName), text, 0o600)
}

// ReadApplied is what Write has written; nil where there is none.
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
