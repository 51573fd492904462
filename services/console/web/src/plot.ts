// What draws trends. The page loads it when it shows the first one.
export { default } from "uplot";
