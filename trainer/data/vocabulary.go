package data

import (
	"errors"
	"fmt"
	"iter"
)

// maxVocabulary bounds the tokens of a vocabulary: ids fit into an int32.
const maxVocabulary = 1 << 31

// Vocabulary numbers tokens. It does not change; any goroutine may use it.
type Vocabulary struct {
	tokens  []string
	ids     map[string]int
	unknown int
}

// ReadVocabulary reads a vocabulary file: a token on each line, whose id is
// the number of lines before it. Every token that is not in the file counts as
// the token unknown, which must be in it. Empty lines and tokens that are
// there twice are errors.
func ReadVocabulary(path, unknown string) (*Vocabulary, error) {
	return readFile(path, func(s *source) (*Vocabulary, error) { return decodeVocabulary(s, unknown) })
}

func decodeVocabulary(s *source, unknown string) (*Vocabulary, error) {
	v := &Vocabulary{ids: map[string]int{}}
	if err := eachLine(s, v.add); err != nil {
		return nil, err
	}
	id, ok := v.ids[unknown]
	if !ok {
		return nil, fmt.Errorf("%s: the token %q, which stands for unknown ones, is none of its %d tokens", s.name, unknown, v.Len())
	}
	v.unknown = id
	return v, nil
}

func (v *Vocabulary) add(token string) error {
	if token == "" {
		return errors.New("an empty line, want a token")
	}
	if first, twice := v.ids[token]; twice {
		return fmt.Errorf("token %.80q is on line %d already", token, first+1)
	}
	if len(v.tokens) == maxVocabulary {
		return fmt.Errorf("more than %d tokens", int64(maxVocabulary))
	}
	v.ids[token] = len(v.tokens)
	v.tokens = append(v.tokens, token)
	return nil
}

// Len is the number of tokens, the unknown one included.
func (v *Vocabulary) Len() int { return len(v.tokens) }

// ID is a token's number, that of the unknown token where it has none.
func (v *Vocabulary) ID(token string) int {
	if id, ok := v.ids[token]; ok {
		return id
	}
	return v.unknown
}

// Token is the token with a number, 0 <= id < Len().
func (v *Vocabulary) Token(id int) string { return v.tokens[id] }

// Append appends the ids of tokens to ids and returns it:
//
//	ids = v.Append(ids[:0], strings.FieldsSeq(line))
func (v *Vocabulary) Append(ids []int, tokens iter.Seq[string]) []int {
	for token := range tokens {
		ids = append(ids, v.ID(token))
	}
	return ids
}
