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
// all tasks). The driver sends all of them to every host, so NewAddresses
// compresses them once and every message reuses the compressed bytes.
type Addresses struct {
	tables addressTables
	packed []byte // tables as compressed JSON; nil in the zero Addresses
}

type addressTables struct {
	Cluster cluster.Spec `json:"cluster"`
	Foreign cluster.Spec `json:"foreign"`
}

// NewAddresses returns an Addresses with two address tables. In tasks are the
// listen addresses of tasks that use plx's trainer; in foreign are ports
// reserved for programs that do not.
func NewAddresses(tasks, foreign cluster.Spec) Addresses {
	a := Addresses{tables: addressTables{tasks, foreign}}
	text, _ := json.Marshal(a.tables) // Marshal cannot fail: the tables contain only strings
	var packed bytes.Buffer
	w, _ := flate.NewWriter(&packed, flate.DefaultCompression) // cannot fail: DefaultCompression is a valid level
	w.Write(text)                                              // cannot fail: w writes to a bytes.Buffer
	w.Close()                                                  // cannot fail: w writes to a bytes.Buffer
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
