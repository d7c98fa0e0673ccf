package safetensors

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"unicode/utf16"
)

// parser reads the header token by token. A decoder into structs would silently
// accept a key that occurs twice, and silently drop an unknown key.
type parser struct {
	text []byte
	json *json.Decoder
	at   int64 // offset of the latest token, with the separator before it
}

func (p *parser) fault(format string, args ...any) error {
	return fmt.Errorf("after byte %d: "+format, append([]any{p.at}, args...)...)
}

// next returns the next token. A string can be written again without a change.
func (p *parser) next() (json.Token, error) {
	p.at = p.json.InputOffset()
	token, err := p.json.Token()
	switch {
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return nil, p.fault("the text ends too early")
	case err != nil:
		return nil, p.fault("%w", err)
	}
	if _, ok := token.(string); ok && halfPair(p.text[p.at:p.json.InputOffset()]) {
		return nil, p.fault("an escape that is half a character")
	}
	return token, nil
}

// object calls each for every key. The callback reads the key's value.
func (p *parser) object(each func(key string) error) error {
	if err := p.expect('{', "an object"); err != nil {
		return err
	}
	seen := map[string]bool{}
	for p.json.More() {
		key, err := p.string()
		if err != nil {
			return err
		}
		if seen[key] {
			return fmt.Errorf("key %.100q: twice", key)
		}
		seen[key] = true
		if err := each(key); err != nil {
			return err
		}
	}
	return p.expect('}', "the end of an object")
}

func (p *parser) expect(delim json.Delim, what string) error {
	token, err := p.next()
	if err == nil && token != delim {
		err = p.fault("want %s", what)
	}
	return err
}

func (p *parser) string() (string, error) {
	token, err := p.next()
	s, ok := token.(string)
	if err == nil && !ok {
		err = p.fault("want a string")
	}
	return s, err
}

// numbers reads an array of at most most non-negative whole numbers. It is
// never nil.
func (p *parser) numbers(most int) ([]int64, error) {
	all := []int64{}
	if err := p.expect('[', "an array"); err != nil {
		return nil, err
	}
	for p.json.More() {
		token, err := p.next()
		if err != nil {
			return nil, err
		}
		number, _ := token.(json.Number)
		n, err := strconv.ParseUint(number.String(), 10, 63)
		if err != nil {
			return nil, p.fault("want a whole number from 0 to %d", int64(math.MaxInt64))
		}
		if len(all) == most {
			return nil, p.fault("more than %d numbers", most)
		}
		all = append(all, int64(n))
	}
	return all, p.expect(']', "the end of an array")
}

// halfPair finds an escaped surrogate without its other half. Go's decoder
// would replace it silently. text is valid JSON.
func halfPair(text []byte) bool {
	for {
		_, after, found := bytes.Cut(text, []byte(`\`))
		if !found {
			return false
		}
		if text = after[1:]; after[0] != 'u' {
			continue
		}
		first := escaped(after)
		if text = after[5:]; !utf16.IsSurrogate(first) {
			continue
		}
		if !bytes.HasPrefix(text, []byte(`\u`)) || utf16.DecodeRune(first, escaped(text[1:])) == '\uFFFD' {
			return true
		}
		text = text[6:]
	}
}

// escaped returns the code of "u1234...".
func escaped(text []byte) rune {
	code, _ := strconv.ParseUint(string(text[1:5]), 16, 16) // the JSON is valid
	return rune(code)
}
