package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/plx-run/plx/trainer/safetensors"
	"gorgonia.org/tensor"
)

// save writes the variables, in the order of their names, to a safetensors file
// that appears complete or not at all.
func save(path string, values map[string]*tensor.Dense) error {
	var all []safetensors.Tensor
	for _, name := range slices.Sorted(maps.Keys(values)) {
		weights, ok := values[name].Data().([]float32)
		if !ok {
			return fmt.Errorf("save weights: variable %s holds %T, not float32", name, values[name].Data())
		}
		data, err := binary.Append(nil, binary.LittleEndian, weights)
		if err != nil {
			return fmt.Errorf("save weights: %s: %w", name, err)
		}
		all = append(all, safetensors.Tensor{Name: name, Dtype: safetensors.F32, Shape: values[name].Shape(), Data: data})
	}
	temporary := fmt.Sprintf("%s.%d.tmp", path, os.Getpid())
	f, err := os.Create(temporary)
	if err != nil {
		return fmt.Errorf("save weights: %w", err)
	}
	_, err = safetensors.Write(f, nil, all)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("save weights to %s: %w", path, err), os.Remove(temporary))
	}
	return nil
}
