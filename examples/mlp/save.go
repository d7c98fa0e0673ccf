package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"gorgonia.org/tensor"
)

// header is the JSON on the first line of a weights file. The values of the
// variables follow in the order of the header, as little-endian float32, row
// by row.
type header struct {
	Variables []variable `json:"variables"`
}

type variable struct {
	Name  string `json:"name"`
	Shape []int  `json:"shape"`
}

// save writes the variables to a file, sorted by name. It never leaves an
// incomplete file at path.
func save(path string, values map[string]*tensor.Dense) (err error) {
	temporary := fmt.Sprintf("%s.%d.tmp", path, os.Getpid())
	f, err := os.Create(temporary)
	if err != nil {
		return fmt.Errorf("save weights: %w", err)
	}
	w := bufio.NewWriter(f)
	err = errors.Join(write(w, values), w.Flush(), f.Close())
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("save weights to %s: %w", path, err), os.Remove(temporary))
	}
	return nil
}

func write(w *bufio.Writer, values map[string]*tensor.Dense) error {
	var names []string
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	var h header
	for _, name := range names {
		h.Variables = append(h.Variables, variable{Name: name, Shape: values[name].Shape()})
	}
	if err := json.NewEncoder(w).Encode(h); err != nil {
		return err
	}
	for _, name := range names {
		data, ok := values[name].Data().([]float32)
		if !ok {
			return fmt.Errorf("variable %s holds %T, not float32", name, values[name].Data())
		}
		if err := binary.Write(w, binary.LittleEndian, data); err != nil {
			return err
		}
	}
	return nil
}
