// Renders the templates of a chart with Go's own template engine, which is what Helm's charts are written for. Of Helm's functions it has those that the charts of this
// repository use; a template that uses another does not parse.
//
// Standard input: {"chart": directory, "release": {"Name", "Namespace"}, "values": {...}}. Standard output: {file: text}.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"
)

type request struct {
	Chart   string                 `json:"chart"`
	Release map[string]interface{} `json:"release"`
	Values  map[string]interface{} `json:"values"`
}

func toJSON(value interface{}) (string, error) {
	text, err := json.Marshal(value)
	return string(text), err
}

func indent(spaces int, text string) string {
	pad := strings.Repeat(" ", spaces)
	return pad + strings.ReplaceAll(text, "\n", "\n"+pad)
}

func run() error {
	var wanted request
	if err := json.NewDecoder(os.Stdin).Decode(&wanted); err != nil {
		return err
	}
	name := filepath.Base(wanted.Chart)
	base := name + "/templates"
	all := template.New(name).Option("missingkey=zero")
	execute := func(file string, data interface{}) (string, error) {
		var out bytes.Buffer
		err := all.ExecuteTemplate(&out, file, data)
		// A value that is absent prints as nothing.
		return strings.ReplaceAll(out.String(), "<no value>", ""), err
	}
	all.Funcs(template.FuncMap{
		"contains": func(part, text string) bool { return strings.Contains(text, part) },
		"default": func(other, value interface{}) interface{} {
			if truth, _ := template.IsTrue(value); truth {
				return value
			}
			return other
		},
		"dict": func(pairs ...interface{}) map[string]interface{} {
			made := map[string]interface{}{}
			for i := 0; i+1 < len(pairs); i += 2 {
				made[fmt.Sprint(pairs[i])] = pairs[i+1]
			}
			return made
		},
		"include": execute,
		"indent":  indent,
		"list":    func(items ...interface{}) []interface{} { return items },
		// A cluster that has nothing.
		"lookup": func(apiVersion, kind, namespace, name string) map[string]interface{} {
			return map[string]interface{}{}
		},
		"nindent": func(spaces int, text string) string { return "\n" + indent(spaces, text) },
		"quote":   func(value interface{}) string { return strconv.Quote(fmt.Sprint(value)) },
		"sha256sum": func(text string) string {
			return fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
		},
		"squote": func(value interface{}) string { return "'" + fmt.Sprint(value) + "'" },
		"toJson": toJSON,
		// JSON is YAML.
		"toYaml": toJSON,
		"trim":   strings.TrimSpace,
	})
	files, err := filepath.Glob(filepath.Join(wanted.Chart, "templates", "*.yaml"))
	if err != nil {
		return err
	}
	shared, err := filepath.Glob(filepath.Join(wanted.Chart, "templates", "_*.tpl"))
	if err != nil {
		return err
	}
	for _, file := range append(shared, files...) {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if _, err := all.New(base + "/" + filepath.Base(file)).Parse(string(text)); err != nil {
			return err
		}
	}
	rendered := map[string]string{}
	for _, file := range files {
		own := base + "/" + filepath.Base(file)
		text, err := execute(own, map[string]interface{}{
			"Chart":    map[string]interface{}{"Name": name},
			"Release":  wanted.Release,
			"Template": map[string]interface{}{"BasePath": base, "Name": own},
			"Values":   wanted.Values,
		})
		if err != nil {
			return err
		}
		rendered[filepath.Base(file)] = text
	}
	return json.NewEncoder(os.Stdout).Encode(rendered)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
