package protocol

import (
	"reflect"
	"strings"
)

// maxText bounds each text of a trimmed message, in bytes.
const maxText = 8 << 10

// Trim cuts the texts of a message from an agent. A driver keeps many of them, and its
// verdict carries them to every agent in one message, which must not become too long
// because one host tells too much.
func (m *Message) Trim() { trim(reflect.ValueOf(m)) }

func trim(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if text := v.String(); len(text) > maxText && v.CanSet() {
			v.SetString(strings.ToValidUTF8(text[:maxText], "") + "...")
		}
	case reflect.Pointer:
		if !v.IsNil() {
			trim(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			trim(v.Field(i))
		}
	case reflect.Slice:
		for i := range v.Len() {
			trim(v.Index(i))
		}
	case reflect.Map:
		for key, value := range v.Seq2() {
			if value.Kind() != reflect.String {
				trim(value) // a pointer
				continue
			}
			cut := reflect.New(value.Type()).Elem()
			cut.Set(value)
			trim(cut)
			v.SetMapIndex(key, cut)
		}
	}
}
