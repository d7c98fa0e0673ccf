package protocol

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"fmt"
	"io"

	"github.com/plx-run/plx/trainer/cluster"
)

// Addresses are those of all tasks of a generation. Every host is sent all of them, so
// they travel compressed, and are compressed once for all hosts.
type Addresses struct {
	tables addressTables
	packed []byte // tables as JSON, compressed; nil: of the zero value
}

type addressTables struct {
	Cluster cluster.Spec `json:"cluster"`
	Foreign cluster.Spec `json:"foreign"`
}

// NewAddresses returns the addresses at which the tasks of plx's trainer listen, and those
// that are reserved for other programs.
func NewAddresses(tasks, foreign cluster.Spec) Addresses {
	a := Addresses{tables: addressTables{tasks, foreign}}
	text, _ := json.Marshal(a.tables) // strings always encode
	var packed bytes.Buffer
	w, _ := flate.NewWriter(&packed, flate.DefaultCompression) // which is a level
	w.Write(text)                                              // a buffer takes all
	w.Close()                                                  // a buffer takes the rest too
	a.packed = packed.Bytes()
	return a
}

// Cluster has where the tasks of plx's trainer listen.
func (a Addresses) Cluster() cluster.Spec { return a.tables.Cluster }

// Foreign has the reserved addresses, for TF_CONFIG and MASTER_PORT of other programs.
func (a Addresses) Foreign() cluster.Spec { return a.tables.Foreign }

// MarshalJSON encodes a.
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
