package k8sutil

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// decoder decodes what an API server answers to the values that k8s.io/apimachinery/pkg/util/json
// makes of it, but for managedFields, in a third of the time and half the memory.
type decoder struct {
	json *jsontext.Decoder
	// names has each member's name once, by its JSON, where many objects have the same ones.
	names map[string]string
}

func newDecoder(raw []byte) *decoder {
	return &decoder{json: jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))}
}

// decodeObject decodes one object.
func decodeObject(raw []byte) (map[string]any, error) {
	d := newDecoder(raw)
	object, err := d.object()
	if err == nil {
		err = d.end()
	}
	return object, err
}

// decodeList decodes a list of objects.
func decodeList(raw []byte) (*unstructured.UnstructuredList, error) {
	d := newDecoder(raw)
	d.names = map[string]string{}
	list := &unstructured.UnstructuredList{Object: map[string]any{}}
	err := d.members(func(name string) (err error) {
		if name != "items" || d.json.PeekKind() == jsontext.KindNull {
			list.Object[name], err = d.value()
			return err
		}
		return d.elements(func() error {
			object, err := d.object()
			list.Items = append(list.Items, unstructured.Unstructured{Object: object})
			return err
		})
	})
	if err == nil {
		err = d.end()
	}
	return list, err
}

// end fails if there is more.
func (d *decoder) end() error {
	_, err := d.json.ReadToken()
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("there is a second value before offset %d", d.json.InputOffset())
	}
	return err
}

// object decodes an object of Kubernetes. It leaves out managedFields, which take most of its room
// and which nobody reads here.
func (d *decoder) object() (map[string]any, error) {
	object := map[string]any{}
	return object, d.members(func(name string) (err error) {
		if name != "metadata" || d.json.PeekKind() != jsontext.KindBeginObject {
			object[name], err = d.value()
			return err
		}
		metadata := map[string]any{}
		object[name] = metadata
		return d.members(func(name string) (err error) {
			if name == "managedFields" {
				return d.json.SkipValue()
			}
			metadata[name], err = d.value()
			return err
		})
	})
}

func (d *decoder) value() (any, error) {
	switch d.json.PeekKind() {
	case jsontext.KindBeginObject:
		object := map[string]any{}
		return object, d.members(func(name string) (err error) {
			object[name], err = d.value()
			return err
		})
	case jsontext.KindBeginArray:
		array := []any{}
		err := d.elements(func() error {
			element, err := d.value()
			array = append(array, element)
			return err
		})
		return array, err
	}
	raw, err := d.json.ReadValue()
	if err != nil {
		return nil, err
	}
	switch raw.Kind() {
	case jsontext.KindString:
		return text(raw), nil
	case jsontext.KindNumber:
		if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
			return n, nil
		}
		return strconv.ParseFloat(string(raw), 64)
	case jsontext.KindNull:
		return nil, nil
	}
	return raw.Kind() == jsontext.KindTrue, nil
}

// members calls each after the name of every member, to decode or to skip what it names.
func (d *decoder) members(each func(name string) error) error {
	if err := d.begin(jsontext.KindBeginObject, "object"); err != nil {
		return err
	}
	for d.json.PeekKind() != jsontext.KindEndObject {
		name, err := d.name()
		if err == nil {
			err = each(name)
		}
		if err != nil {
			return err
		}
	}
	_, err := d.json.ReadToken()
	return err
}

// elements calls each before every element of an array, to decode it.
func (d *decoder) elements(each func() error) error {
	if err := d.begin(jsontext.KindBeginArray, "array"); err != nil {
		return err
	}
	for d.json.PeekKind() != jsontext.KindEndArray {
		if err := each(); err != nil {
			return err
		}
	}
	_, err := d.json.ReadToken()
	return err
}

func (d *decoder) begin(kind jsontext.Kind, what string) error {
	token, err := d.json.ReadToken()
	if err == nil && token.Kind() != kind {
		err = fmt.Errorf("there is no %s before offset %d", what, d.json.InputOffset())
	}
	return err
}

func (d *decoder) name() (string, error) {
	raw, err := d.json.ReadValue()
	if err != nil {
		return "", err
	}
	if d.names == nil {
		return text(raw), nil
	}
	name, known := d.names[string(raw)]
	if !known {
		name = text(raw)
		d.names[string(raw)] = name
	}
	return name, nil
}

// text is the text of a string in JSON. What is no UTF-8 in it becomes U+FFFD.
func text(raw jsontext.Value) string {
	if inside := raw[1 : len(raw)-1]; bytes.IndexByte(inside, '\\') < 0 && utf8.Valid(inside) {
		return string(inside)
	}
	unquoted, _ := jsontext.AppendUnquote(nil, raw) // it fails for what is no UTF-8, and is complete then
	return string(unquoted)
}
