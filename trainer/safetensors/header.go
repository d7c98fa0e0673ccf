package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

const (
	lengthSize  = 8       // bytes of the header's length
	maxHeader   = 1 << 24 // bytes of the header
	metadataKey = "__metadata__"

	maxDimensions = 64 // NumPy's own bound
)

// parseHeader returns the tensors in the header's order. text must be UTF-8.
func parseHeader(text []byte) (metadata map[string]string, tensors []placed, err error) {
	p := &parser{text: text, json: json.NewDecoder(bytes.NewReader(text))}
	p.json.UseNumber()
	err = p.object(func(key string) (err error) {
		if key == metadataKey {
			if metadata, err = p.metadata(); err != nil {
				err = fmt.Errorf("metadata: %w", err)
			}
			return err
		}
		t, err := p.tensor(key)
		if err != nil {
			return fmt.Errorf("tensor %.100q: %w", key, err)
		}
		tensors = append(tensors, t)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	p.at = p.json.InputOffset()
	if rest := bytes.TrimLeft(text[p.at:], " \t\r\n"); len(rest) > 0 {
		return nil, nil, p.fault("%.20q after the end", rest)
	}
	return metadata, tensors, nil
}

func (p *parser) metadata() (map[string]string, error) {
	m := map[string]string{}
	err := p.object(func(key string) (err error) {
		m[key], err = p.string()
		return err
	})
	return m, err
}

// tensor returns a tensor whose offsets fit its shape. Nothing else is known of
// the offsets yet.
func (p *parser) tensor(name string) (placed, error) {
	t := placed{Info: Info{Name: name}}
	if name == "" {
		return t, errors.New("no name")
	}
	var offsets []int64
	err := p.object(func(key string) (err error) {
		switch key {
		case "dtype":
			var dtype string
			dtype, err = p.string()
			t.Dtype = Dtype(dtype)
		case "shape":
			t.Shape, err = p.shape()
		case "data_offsets":
			offsets, err = p.numbers(2)
		default:
			return fmt.Errorf("unknown key %.100q", key)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", key, err)
		}
		return err
	})
	switch {
	case err != nil:
		return t, err
	case t.Dtype == "":
		return t, errors.New("no dtype")
	case t.Shape == nil:
		return t, errors.New("no shape")
	case len(offsets) != 2:
		return t, fmt.Errorf("%d data_offsets, want 2", len(offsets))
	}
	t.begin = offsets[0]
	if t.Size, err = sizeOf(t.Dtype, t.Shape); err == nil && offsets[1]-offsets[0] != t.Size {
		err = fmt.Errorf("data_offsets %v for %s %v, want %d bytes", offsets, t.Dtype, t.Shape, t.Size)
	}
	return t, err
}

// shape reads an array of dimensions. It is never nil.
func (p *parser) shape() ([]int, error) {
	all, err := p.numbers(maxDimensions)
	shape := make([]int, len(all))
	for i, n := range all {
		if shape[i] = int(n); int64(shape[i]) != n {
			return nil, p.fault("dimension %d is larger than this machine's numbers", n)
		}
	}
	return shape, err
}
