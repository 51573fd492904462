import "uplot/dist/uPlot.min.css";
import "./styles/app.css";
import { render } from "preact";
import { Shell } from "./shell.tsx";
import { startKeys } from "./keys.ts";
import { startNotify } from "./notify.ts";
import { startRouter } from "./router.ts";
import { startStream } from "./stream.ts";
import { startTheme } from "./theme.ts";

startTheme();
startRouter();
startKeys();
render(<Shell />, document.getElementById("app")!);
startStream();
startNotify();
