package protocol

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"fmt"
	"io"

	"github.com/plx-run/plx/trainer/cluster"
)

// Addresses holds the network addresses of all tasks of one generation (run of
// all tasks). The driver sends them to every host. Therefore NewAddresses
// compresses them once, and every message contains the same compressed bytes.
type Addresses struct {
	tables addressTables
	packed []byte // tables as compressed JSON; nil in the zero Addresses
}

type addressTables struct {
	Cluster cluster.Spec `json:"cluster"`
	Foreign cluster.Spec `json:"foreign"`
}

// NewAddresses returns an Addresses with two tables. The table tasks has the
// listen addresses of tasks that use plx's trainer. The table foreign has
// ports reserved for programs that do not use it.
func NewAddresses(tasks, foreign cluster.Spec) Addresses {
	a := Addresses{tables: addressTables{tasks, foreign}}
	text, _ := json.Marshal(a.tables) // the error is ignored: the tables contain only strings, which Marshal can encode
	var packed bytes.Buffer
	w, _ := flate.NewWriter(&packed, flate.DefaultCompression) // the error is ignored: DefaultCompression is a valid level
	w.Write(text)                                              // the error is ignored: a bytes.Buffer accepts all writes
	w.Close()                                                  // the error is ignored: a bytes.Buffer accepts all writes
	a.packed = packed.Bytes()
	return a
}

// Cluster returns the addresses at which the tasks that use plx's trainer
// listen.
func (a Addresses) Cluster() cluster.Spec { return a.tables.Cluster }

// Foreign returns the addresses reserved for programs that do not use plx's
// trainer. Agents pass these addresses to the programs in TF_CONFIG and
// MASTER_PORT.
func (a Addresses) Foreign() cluster.Spec { return a.tables.Foreign }

// MarshalJSON encodes the addresses as compressed bytes in base64.
func (a Addresses) MarshalJSON() ([]byte, error) { return json.Marshal(a.packed) }

// UnmarshalJSON decodes what MarshalJSON wrote.
func (a *Addresses) UnmarshalJSON(text []byte) error {
	*a = Addresses{}
	if err := json.Unmarshal(text, &a.packed); err != nil || len(a.packed) == 0 {
		return err
	}
	r := io.LimitReader(flate.NewReader(bytes.NewReader(a.packed)), MaxMessage+1)
	unpacked, err := io.ReadAll(r)
	if err == nil && len(unpacked) > MaxMessage {
		err = fmt.Errorf("more than %d bytes", MaxMessage)
	}
	if err == nil {
		err = json.Unmarshal(unpacked, &a.tables)
	}
	if err != nil {
		return fmt.Errorf("addresses of the tasks: %w", err)
	}
	return nil
}
