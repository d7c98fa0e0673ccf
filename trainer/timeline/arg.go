package timeline

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"time"
)

// arg is one named value of an event.
type arg struct {
	key, text string
	number    float64
	whole     int64
	kind      kind
}

type kind uint8

const (
	textual kind = iota
	logical      // whole is 0 or 1
	integer
	unsigned // bits in whole
	real
)

// argsOf copies pairs of key and value. The values do not escape, so a call
// that records nothing allocates nothing.
func argsOf(pairs []any) []arg {
	if len(pairs) == 0 {
		return nil
	}
	args := make([]arg, 0, (len(pairs)+1)/2)
	for i := 0; i < len(pairs); i += 2 {
		key, ok := pairs[i].(string)
		switch {
		case !ok:
			args = append(args, arg{key: fmt.Sprintf("argument %d", i), text: "the key is not a string"})
		case i+1 == len(pairs):
			args = append(args, arg{key: key, text: "the value is missing"})
		default:
			args = append(args, argOf(key, pairs[i+1]))
		}
	}
	return args
}

func argOf(key string, value any) arg {
	switch v := value.(type) {
	case string:
		return arg{key: key, text: v}
	case bool:
		a := arg{key: key, kind: logical}
		if v {
			a.whole = 1
		}
		return a
	case float64:
		return arg{key: key, kind: real, number: v}
	case float32:
		return arg{key: key, kind: real, number: float64(v)}
	case time.Duration:
		return arg{key: key, kind: real, number: v.Seconds()}
	}
	return wholeArg(key, value)
}

func wholeArg(key string, value any) arg {
	switch v := value.(type) {
	case nil:
		return arg{key: key, text: "nil"}
	case int:
		return arg{key: key, kind: integer, whole: int64(v)}
	case int8:
		return arg{key: key, kind: integer, whole: int64(v)}
	case int16:
		return arg{key: key, kind: integer, whole: int64(v)}
	case int32:
		return arg{key: key, kind: integer, whole: int64(v)}
	case int64:
		return arg{key: key, kind: integer, whole: v}
	case uint:
		return arg{key: key, kind: unsigned, whole: int64(v)}
	case uint8:
		return arg{key: key, kind: integer, whole: int64(v)}
	case uint16:
		return arg{key: key, kind: integer, whole: int64(v)}
	case uint32:
		return arg{key: key, kind: integer, whole: int64(v)}
	case uint64:
		return arg{key: key, kind: unsigned, whole: int64(v)}
	}
	return arg{key: key, text: reflect.TypeOf(value).String()}
}

// appendJSON writes the value. Numbers that JSON cannot write become strings.
func (a arg) appendJSON(b []byte) []byte {
	switch a.kind {
	case logical:
		return strconv.AppendBool(b, a.whole == 1)
	case integer:
		return strconv.AppendInt(b, a.whole, 10)
	case unsigned:
		return strconv.AppendUint(b, uint64(a.whole), 10)
	case real:
		if math.IsNaN(a.number) || math.IsInf(a.number, 0) {
			return appendString(b, strconv.FormatFloat(a.number, 'g', -1, 64))
		}
		return strconv.AppendFloat(b, a.number, 'g', -1, 64)
	}
	return appendString(b, a.text)
}

// appendString writes s as a JSON string. Bytes that are not UTF-8 become the
// replacement character.
func appendString(b []byte, s string) []byte {
	quoted, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string always has a JSON form
	}
	return append(b, quoted...)
}
